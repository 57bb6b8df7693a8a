//! Claims of an ID token: checks that the token is for this client, valid now and of this attempt (OpenID Connect Core
//! 1.0), and reads the user from it.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::OidcError;
use crate::base::keys::Secret;

/// How many seconds the issuer's clock and the gateway's may differ.
const LEEWAY: i64 = 60;
/// The maximum length of `sub` in the standard.
const MAX_SUBJECT: usize = 255;

/// The user as identified by the issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claims {
    /// `sub`: the issuer's identifier of the user, unique and never reassigned.
    pub subject: String,
    /// Only if the issuer has verified the address.
    pub email: Option<String>,
    pub name: Option<String>,
}

/// The claims about the user, as they are sent in the ID token and by the userinfo endpoint.
#[derive(Debug, Deserialize)]
pub(crate) struct UserClaims {
    pub sub: String,
    pub email: Option<String>,
    #[serde(default, deserialize_with = "flag")]
    email_verified: bool,
    name: Option<String>,
}

/// The claims that bind an ID token to issuer, client, time and attempt.
#[derive(Deserialize)]
struct TokenClaims {
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

/// The values that the token's claims must have.
pub(crate) struct Expected<'a> {
    pub issuer: &'a str,
    pub client_id: &'a str,
    pub nonce: &'a str,
    pub now: i64,
}

/// Accepts `true`, and `"true"` as some issuers send it; anything else is false.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value == true || value == "true")
}

impl UserClaims {
    /// Parses and checks the payload of a token whose signature was verified.
    pub(crate) fn from_token(payload: &[u8], expected: &Expected) -> Result<Self, OidcError> {
        let refused = |why: &str| OidcError::Refused(format!("the ID token {why}"));
        let unreadable = |_| refused("lacks a required claim");
        let token: TokenClaims = serde_json::from_slice(payload).map_err(unreadable)?;
        let user: Self = serde_json::from_slice(payload).map_err(unreadable)?;
        match token.problem(expected) {
            Some(why) => Err(refused(why)),
            None if user.sub.is_empty() || user.sub.len() > MAX_SUBJECT => {
                Err(refused("has no valid `sub`"))
            }
            None => Ok(user),
        }
    }
}

impl TokenClaims {
    /// Why the token is refused; `None` if it is valid.
    fn problem(&self, expected: &Expected) -> Option<&'static str> {
        let is_this_client = |client: &String| client == expected.client_id;
        let (is_for_this_client, is_for_others) = match &self.aud {
            Audience::One(one) => (is_this_client(one), false),
            Audience::Many(many) => (many.iter().any(is_this_client), many.len() > 1),
        };
        // A token for several clients must name the one that requested it in `azp`.
        let is_requested_here = self.azp.as_ref().map_or(!is_for_others, is_this_client);
        #[expect(
            clippy::cast_precision_loss,
            reason = "a time in seconds is far below the largest exact integer of an f64"
        )]
        let (early, late) = (
            (expected.now - LEEWAY) as f64,
            (expected.now + LEEWAY) as f64,
        );
        let is_future = |time: f64| time > late;
        let nonce = self.nonce.as_deref().unwrap_or_default();
        if self.iss != expected.issuer {
            Some("is from another issuer")
        } else if !is_for_this_client || !is_requested_here {
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

impl From<UserClaims> for Claims {
    fn from(user: UserClaims) -> Self {
        Self {
            subject: user.sub,
            email: user.email.filter(|_| user.email_verified),
            name: user.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn claims(changed: &[(&str, Value)]) -> Result<Claims, OidcError> {
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
        UserClaims::from_token(claims.to_string().as_bytes(), &expected).map(Claims::from)
    }

    #[test]
    fn a_token_is_checked_for_issuer_client_time_and_attempt() {
        for right in [
            vec![],
            vec![("aud", json!(["us"]))],
            vec![("aud", json!(["us", "them"])), ("azp", json!("us"))],
            vec![("exp", json!(NOW - 59))],
            vec![("iat", json!(NOW + 60)), ("nbf", json!(NOW + 60))],
            vec![("iat", json!(1_800_000_000.5))],
        ] {
            assert!(claims(&right).is_ok(), "{right:?}");
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
            assert!(claims(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn only_a_verified_address_is_used() {
        for (verified, is_used) in [
            (json!(true), true),
            (json!("true"), true),
            (json!("yes"), false),
            (json!(1), false),
            (json!(false), false),
            (Value::Null, false),
        ] {
            let claims = claims(&[("email_verified", verified.clone())]).unwrap();
            assert_eq!(claims.email.is_some(), is_used, "{verified}");
        }
    }
}
