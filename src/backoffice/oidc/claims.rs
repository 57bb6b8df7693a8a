//! What an issuer says of somebody, and whether it says it to us, now, and about this attempt.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::OidcError;
use crate::base::keys::Secret;

/// By how many seconds its clock and ours may differ.
const LEEWAY: i64 = 60;
/// No issuer may give a longer name to anybody.
const MAX_SUBJECT: usize = 255;

/// Somebody, as the issuer knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// What it calls them: of nobody else, and for good.
    pub subject: String,
    /// Only if the issuer has made sure that it is theirs.
    pub email: Option<String>,
    pub name: Option<String>,
}

/// As it is sent.
#[derive(Debug, Deserialize)]
pub struct Told {
    pub sub: String,
    pub email: Option<String>,
    #[serde(default, deserialize_with = "flag")]
    email_verified: bool,
    name: Option<String>,
}

/// What makes a token one for us.
#[derive(Deserialize)]
struct Meant {
    iss: String,
    aud: Audience,
    azp: Option<String>,
    exp: f64,
    iat: f64,
    nbf: Option<f64>,
    nonce: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// What a token must say.
pub struct Expected<'a> {
    pub issuer: &'a str,
    pub client_id: &'a str,
    pub nonce: &'a str,
    pub now: i64,
}

/// Some write `"true"`. Whatever else is there is no yes.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value == true || value == "true")
}

impl Told {
    /// What a token says whose signature is right.
    pub fn of(payload: &[u8], expected: &Expected) -> Result<Self, OidcError> {
        let refused = |why: &str| OidcError::Refused(format!("the ID token {why}"));
        let unreadable = |_| refused("lacks what it must say");
        let meant: Meant = serde_json::from_slice(payload).map_err(unreadable)?;
        let told: Self = serde_json::from_slice(payload).map_err(unreadable)?;
        match meant.problem(expected) {
            Some(why) => Err(refused(why)),
            None if told.sub.is_empty() || told.sub.len() > MAX_SUBJECT => {
                Err(refused("is about nobody"))
            }
            None => Ok(told),
        }
    }
}

impl Meant {
    fn problem(&self, expected: &Expected) -> Option<&'static str> {
        let is_us = |client: &String| client == expected.client_id;
        let (is_for_us, is_for_others) = match &self.aud {
            Audience::One(one) => (is_us(one), false),
            Audience::Many(many) => (many.iter().any(is_us), many.len() > 1),
        };
        let is_asked_by_us = self.azp.as_ref().map_or(!is_for_others, is_us);
        #[expect(
            clippy::cast_precision_loss,
            reason = "a time in seconds is far below what it is exact for"
        )]
        let (early, late) = (
            (expected.now - LEEWAY) as f64,
            (expected.now + LEEWAY) as f64,
        );
        let is_future = |time: f64| time > late;
        let nonce = self.nonce.as_deref().unwrap_or_default();
        if self.iss != expected.issuer {
            Some("is from another issuer")
        } else if !is_for_us || !is_asked_by_us {
            Some("is for another client")
        } else if self.exp <= early {
            Some("has expired")
        } else if is_future(self.iat) || self.nbf.is_some_and(is_future) {
            Some("is from the future: is a clock wrong?")
        } else if !Secret::new(expected.nonce).matches(nonce) {
            Some("belongs to another attempt")
        } else {
            None
        }
    }
}

impl From<Told> for Claims {
    fn from(told: Told) -> Self {
        Self {
            subject: told.sub,
            email: told.email.filter(|_| told.email_verified),
            name: told.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn told(changed: &[(&str, Value)]) -> Result<Claims, OidcError> {
        let mut claims = json!({
            "iss": "https://id.example.com", "aud": "us", "sub": "42", "nonce": "n",
            "exp": NOW + 300, "iat": NOW, "email": "a@example.com", "email_verified": true,
        });
        for (key, value) in changed {
            claims[*key] = value.clone();
        }
        let expected = Expected {
            issuer: "https://id.example.com",
            client_id: "us",
            nonce: "n",
            now: NOW,
        };
        Told::of(claims.to_string().as_bytes(), &expected).map(Claims::from)
    }

    #[test]
    fn a_token_is_for_us_now_and_about_this_attempt() {
        for right in [
            vec![],
            vec![("aud", json!(["us"]))],
            vec![("aud", json!(["us", "them"])), ("azp", json!("us"))],
            vec![("exp", json!(NOW - 59))],
            vec![("iat", json!(NOW + 60)), ("nbf", json!(NOW + 60))],
            vec![("iat", json!(1_800_000_000.5))],
        ] {
            assert!(told(&right).is_ok(), "{right:?}");
        }
        for wrong in [
            vec![("iss", json!("https://id.example.com/"))],
            vec![("aud", json!("them"))],
            vec![("aud", json!([]))],
            vec![("aud", json!(["us", "them"]))],
            vec![("aud", json!(["us", "them"])), ("azp", json!("them"))],
            vec![("azp", json!("them"))],
            vec![("exp", json!(NOW - 60))],
            vec![("exp", Value::Null)],
            vec![("iat", json!(NOW + 61))],
            vec![("iat", Value::Null)],
            vec![("nbf", json!(NOW + 61))],
            vec![("nonce", json!("m"))],
            vec![("nonce", Value::Null)],
            vec![("sub", json!(""))],
            vec![("sub", json!("x".repeat(256)))],
            vec![("sub", json!(42))],
        ] {
            assert!(told(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_address_counts_once_it_is_verified() {
        for (verified, counts) in [
            (json!(true), true),
            (json!("true"), true),
            (json!("yes"), false),
            (json!(1), false),
            (json!(false), false),
            (Value::Null, false),
        ] {
            let claims = told(&[("email_verified", verified.clone())]).unwrap();
            assert_eq!(claims.email.is_some(), counts, "{verified}");
        }
    }
}
