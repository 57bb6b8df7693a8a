//! Webhook messages to an endpoint of the operator, signed according to Standard Webhooks.
//!
//! `send` makes one attempt with a timeout of 10 seconds; retries are up to the caller.

use std::{fmt, time::Duration};

use axum::http::{Request, StatusCode, Uri, header};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http_body_util::Full;
use ring::hmac;

use crate::{
    config,
    net::connect::{self, chain},
};

/// Timeout of one message, until the response head has arrived.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a message was not accepted. The text leaves out the URL, which may contain a secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WebhookError {
    /// The endpoint wants no more messages.
    #[error("the endpoint returned status 410: it wants no more messages")]
    Gone,
    #[error("{0}")]
    Failed(String),
}

/// The client of one endpoint.
pub struct Webhook {
    http: connect::Client,
    url: Uri,
    key: hmac::Key,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Webhook(..)")
    }
}

impl Webhook {
    pub(crate) fn new(config: &config::Webhook) -> Result<Self, String> {
        let key = config.key().ok_or("the webhook's secret cannot be used")?;
        Ok(Self {
            http: connect::client(TIMEOUT)?,
            url: config.url.clone(),
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
        })
    }

    /// Sends a message. `id` must be the same for each attempt of a message; `now` is the time of this attempt.
    pub(crate) async fn send(&self, id: &str, now: i64, body: String) -> Result<(), WebhookError> {
        let agent = concat!("tollgate/", env!("CARGO_PKG_VERSION"));
        let request = Request::post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, agent)
            .header("webhook-id", id)
            .header("webhook-timestamp", now)
            .header("webhook-signature", signature(&self.key, id, now, &body))
            .body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| WebhookError::Failed(error.to_string()))?;
        let sent = tokio::time::timeout(TIMEOUT, self.http.request(request)).await;
        let timed_out = |_| WebhookError::Failed("there was no response within 10 seconds".into());
        let response = sent.map_err(timed_out)?;
        let response = response.map_err(|error| WebhookError::Failed(chain(&error)))?;
        match response.status() {
            status if status.is_success() => Ok(()),
            StatusCode::GONE => Err(WebhookError::Gone),
            status => {
                let number = status.as_u16();
                let reason = format!("the endpoint returned status {number}");
                Err(WebhookError::Failed(reason))
            }
        }
    }
}

fn signature(key: &hmac::Key, id: &str, now: i64, body: &str) -> String {
    let signed = hmac::sign(key, format!("{id}.{now}.{body}").as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(signed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example is from the reference libraries of Standard Webhooks.
    #[test]
    fn the_signature_matches_the_reference_implementation() {
        let key = BASE64_STANDARD
            .decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
            .unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let signed = signature(&key, id, 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
