//! Bearer tokens (RFC 6750) of an identity at a cloud, shared by all requests that use the identity.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use axum::http::HeaderValue;
use serde::Deserialize;
use serde_json::Value;

use super::{
    azure, google,
    http::TokenClient,
    renewing::{Issued, Issuer, Renewing},
};
use crate::{base::timestamp, config::Identity};

/// Tokens that do not say how long they are valid are used for this long.
const DEFAULT_LIFETIME: Duration = Duration::from_mins(5);

pub(crate) type TokenSource = Renewing<Cloud>;

/// The header line with a token. It has no `Debug` and no `Display`.
pub(crate) struct Bearer(Box<str>);

impl Bearer {
    fn new(token: &str) -> Result<Self, String> {
        // A line break would add headers to requests.
        let is_valid = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_valid || HeaderValue::try_from(token).is_err() {
            return Err("the token has characters that a header cannot carry".into());
        }
        Ok(Self(format!("authorization: Bearer {token}\r\n").into()))
    }

    /// The header line, which ends in CRLF.
    pub(crate) fn line(&self) -> &str {
        &self.0
    }
}

/// What is sent to get a token: a form that is posted, or a GET request without one.
pub(crate) struct TokenRequest {
    pub url: String,
    pub headers: Vec<(&'static str, String)>,
    pub form: Option<Vec<(&'static str, String)>>,
}

/// A cloud that issues tokens for one identity.
pub(crate) struct Cloud {
    grant: Grant,
    http: TokenClient,
}

enum Grant {
    Google(Box<google::Grant>),
    Azure(crate::config::Azure),
}

/// The sources in use. A provider with an identity that is in use gets its source: after a reload the token stays valid,
/// and deployments with timeouts of their own do not fetch another one.
static SOURCES: Mutex<Vec<(Identity, Weak<TokenSource>)>> = Mutex::new(Vec::new());

/// The source of tokens of an identity. Fails if its key cannot be used.
pub(crate) fn source(identity: &Identity) -> Result<Arc<TokenSource>, String> {
    let mut sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    sources.retain(|(_, source)| source.strong_count() > 0);
    let known = sources.iter().find(|(known, _)| known == identity);
    if let Some(source) = known.and_then(|(_, source)| source.upgrade()) {
        return Ok(source);
    }
    let source = Arc::new(new_source(identity)?);
    sources.push((identity.clone(), Arc::downgrade(&source)));
    Ok(source)
}

fn new_source(identity: &Identity) -> Result<TokenSource, String> {
    let (grant, what) = match identity {
        Identity::Google(google) => (
            Grant::Google(Box::new(google::Grant::new(google)?)),
            "fetching a token from Google",
        ),
        Identity::Azure(azure) => (Grant::Azure(azure.clone()), "fetching a token from Azure"),
        Identity::Aws(_) => return Err("requests to AWS are signed and carry no token".into()),
    };
    let http = TokenClient::new()?;
    Ok(Renewing::new(Cloud { grant, http }, what.to_owned()))
}

impl Issuer for Cloud {
    type Value = Bearer;

    async fn issue(&self) -> Result<Issued<Bearer>, String> {
        let request = match &self.grant {
            Grant::Google(grant) => grant.request(timestamp::now())?,
            Grant::Azure(azure) => azure::request(azure)?,
        };
        let body = self.http.send(&request).await?;
        issued(&body, timestamp::now()).map_err(|why| format!("{}: {why}", request.url))
    }
}

/// Reads the response to a request for a token. What is wrong with it does not quote it.
pub(super) fn issued(body: &[u8], now: i64) -> Result<Issued<Bearer>, String> {
    #[derive(Deserialize)]
    struct Response {
        access_token: String,
        expires_in: Option<Value>,
        expires_on: Option<Value>,
    }
    let response: Response = serde_json::from_slice(body)
        .map_err(|_| "the response has no `access_token`".to_owned())?;
    // Azure's metadata services write numbers as texts, and some of them only the time of the end.
    let left = |end: i64| end.saturating_sub(now);
    let seconds = number(response.expires_in).or_else(|| number(response.expires_on).map(left));
    let lifetime = match seconds {
        None => DEFAULT_LIFETIME,
        Some(seconds) => match u64::try_from(seconds) {
            // A day bounds what a wrong clock or a wrong unit can do.
            Ok(seconds @ 1..) => Duration::from_secs(seconds.min(86_400)),
            _ => {
                return Err(
                    "the token has expired already: is the clock of this machine right?".into(),
                );
            }
        },
    };
    Ok(Issued {
        value: Bearer::new(&response.access_token)?,
        lifetime,
    })
}

fn number(value: Option<Value>) -> Option<i64> {
    match value? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> Result<(String, u64), String> {
        let issued = issued(body.to_string().as_bytes(), 1_000)?;
        Ok((issued.value.line().to_owned(), issued.lifetime.as_secs()))
    }

    #[test]
    fn the_lifetime_is_read_in_every_form() {
        for (end, expected) in [
            (json!({ "expires_in": 3599 }), 3_599),
            (json!({ "expires_in": "86399" }), 86_399),
            (json!({ "expires_on": "4600" }), 3_600),
            (json!({ "expires_in": "3600", "expires_on": "9" }), 3_600),
            (json!({ "expires_in": 9_999_999 }), 86_400),
            (json!({ "expires_on": "6/25/2026 11:06:32 AM +00:00" }), 300),
            (json!({}), 300),
        ] {
            let mut body = json!({ "access_token": "ya29.a-b_c", "token_type": "Bearer" });
            body.as_object_mut()
                .unwrap()
                .extend(end.as_object().unwrap().clone());
            let expected = ("authorization: Bearer ya29.a-b_c\r\n".to_owned(), expected);
            assert_eq!(read(&body), Ok(expected), "{end}");
        }
    }

    #[test]
    fn what_is_no_token_is_refused_without_being_quoted() {
        for body in [
            json!({ "access_token": "se\r\ncret: 1" }),
            json!({ "access_token": "" }),
            json!({ "access_token": "secret", "expires_in": 0 }),
            json!({ "access_token": "secret", "expires_on": "900" }),
            json!({ "id_token": "secret" }),
            json!("secret"),
        ] {
            let why = read(&body).unwrap_err();
            assert!(!why.contains("cret"), "{why}");
        }
    }
}
