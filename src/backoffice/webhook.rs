//! Messages to a program of the operator's, signed so that it knows whom they are from
//! (Standard Webhooks).

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

/// How long a message may take, from the first byte sent to the head of the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a message was not taken. Where it was sent to is not told: there may be a secret in it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// Nothing is wanted there any more.
    #[error("it answered 410: nothing more is wanted there")]
    Gone,
    #[error("{0}")]
    Failed(String),
}

/// Where messages go, and what they are signed with.
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
    pub fn new(config: &config::Webhook) -> Result<Self, String> {
        let key = config.key().ok_or("the webhook's secret cannot be used")?;
        Ok(Self {
            http: connect::client(TIMEOUT)?,
            url: config.url.clone(),
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
        })
    }

    /// `id` is the same however often a message is sent; `now` is when it is sent.
    pub async fn send(&self, id: &str, now: i64, body: String) -> Result<(), WebhookError> {
        let agent = concat!("tollgate/", env!("CARGO_PKG_VERSION"));
        let request = Request::post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, agent)
            .header("webhook-id", id)
            .header("webhook-timestamp", now)
            .header("webhook-signature", signature(&self.key, id, now, &body))
            .body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| WebhookError::Failed(error.to_string()))?;
        let answered = tokio::time::timeout(TIMEOUT, self.http.request(request)).await;
        let late = |_| WebhookError::Failed("nothing was answered within 10 seconds".into());
        let answered = answered.map_err(late)?;
        let answer = answered.map_err(|error| WebhookError::Failed(chain(&error)))?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            StatusCode::GONE => Err(WebhookError::Gone),
            status => {
                let number = status.as_u16();
                Err(WebhookError::Failed(format!("it answered {number}")))
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

    /// The example of the Standard Webhooks' own libraries.
    #[test]
    fn a_signature_is_the_standards() {
        let key = BASE64_STANDARD
            .decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
            .unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let signed = signature(&key, id, 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
