//! Stripe Checkout: a page of Stripe's for each order, and signed events.

use std::{fmt::Write as _, time::Duration};

use axum::http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use http_body_util::{BodyExt as _, Full, Limited};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::{BeginError, Begun, Delivered, Order, Provider, Refused, event, signature};
use crate::{
    base::keys::Secret,
    config,
    net::connect::{self, chain},
};

const MAX_ANSWER_BYTES: usize = 256 << 10;
/// Longer than any name that Stripe gives.
const MAX_NAME: usize = 255;

pub struct Stripe {
    http: connect::Client,
    base_url: String,
    key: Secret,
    webhook_secret: Secret,
    timeout: Duration,
}

impl Stripe {
    pub fn new(config: &config::Stripe) -> Result<Self, String> {
        Ok(Self {
            http: connect::client(config.timeout)?,
            base_url: config.base_url.clone(),
            key: config.secret_key.clone(),
            webhook_secret: config.webhook_secret.clone(),
            timeout: config.timeout,
        })
    }

    async fn ask(&self, order: &Order<'_>) -> Result<Begun, BeginError> {
        let request = self.request(order)?;
        let asked = self.http.request(request).await;
        let response = asked.map_err(|error| BeginError(chain(&error)))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES);
        let body = body.collect().await;
        let body = body.map_err(|_| BeginError("the answer broke off or is too long".into()))?;
        let body = body.to_bytes();
        if status != StatusCode::OK {
            return Err(BeginError(refusal(status, &body)));
        }
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|_| BeginError("the answer is not a checkout session".into()))?;
        self.begun(answer)
    }

    fn request(&self, order: &Order<'_>) -> Result<Request<Full<Bytes>>, BeginError> {
        let uri: Result<Uri, _> = format!("{}/v1/checkout/sessions", self.base_url).parse();
        let uri = uri.map_err(|error| BeginError(error.to_string()))?;
        let body = form(order)?;
        let agent = concat!("tollgate/", env!("CARGO_PKG_VERSION"));
        Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header(
                header::AUTHORIZATION,
                format!("Bearer {}", self.key.reveal()),
            )
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::USER_AGENT, agent)
            // Asked twice, it is one session.
            .header("idempotency-key", order.checkout)
            .body(Full::new(body.into()))
            .map_err(|_| BeginError("the key cannot stand in a header".into()))
    }

    fn begun(&self, answer: Answer) -> Result<Begun, BeginError> {
        let is_name = !answer.id.is_empty()
            && answer.id.len() <= MAX_NAME
            && answer.id.bytes().all(|byte| byte.is_ascii_graphic());
        // A browser is sent there: by TLS, unless Stripe itself is somebody on this machine.
        let is_safe = |uri: &Uri| match uri.scheme_str() {
            Some("https") => true,
            Some("http") => self.base_url.starts_with("http://"),
            _ => false,
        };
        let uri: Option<Uri> = answer.url.parse().ok();
        if !is_name || !uri.is_some_and(|uri| is_safe(&uri)) {
            return Err(BeginError("the answer has no page to pay at".into()));
        }
        Ok(Begun {
            session: answer.id,
            url: answer.url,
        })
    }
}

impl Provider for Stripe {
    fn key(&self) -> &'static str {
        "stripe"
    }

    fn name(&self) -> &'static str {
        "Stripe"
    }

    fn event_path(&self) -> Option<&'static str> {
        Some("/payments/stripe")
    }

    fn begin<'a>(&'a self, order: &'a Order<'a>) -> BoxFuture<'a, Result<Begun, BeginError>> {
        let late = |_| Err(BeginError("nothing was answered in time".into()));
        let asking = tokio::time::timeout(self.timeout, self.ask(order));
        asking.map(move |asked| asked.unwrap_or_else(late)).boxed()
    }

    fn read(&self, headers: &HeaderMap, body: &[u8], now: i64) -> Result<Delivered, Refused> {
        signature::check(&self.webhook_secret, headers, body, now)?;
        event::read(body)
    }
}

#[derive(Deserialize)]
struct Answer {
    id: String,
    url: String,
}

fn form(order: &Order<'_>) -> Result<String, BeginError> {
    let cents = order.amount.whole_cents();
    let cents = cents.ok_or_else(|| BeginError("there is no such amount in cents".into()))?;
    let cents = cents.to_string();
    let item = "line_items[0]";
    let mut fields = vec![
        ("mode".to_owned(), "payment"),
        ("client_reference_id".to_owned(), order.checkout),
        ("success_url".to_owned(), order.paid_url),
        ("cancel_url".to_owned(), order.cancelled_url),
        (format!("{item}[quantity]"), "1"),
        (format!("{item}[price_data][currency]"), "usd"),
        (format!("{item}[price_data][unit_amount]"), &cents),
        (format!("{item}[price_data][product_data][name]"), "Credit"),
        // What is paid is what was ordered, in the currency it was ordered in.
        ("adaptive_pricing[enabled]".to_owned(), "false"),
        // For whoever looks for it among the provider's payments; we do not read it.
        (
            "payment_intent_data[metadata][checkout]".to_owned(),
            order.checkout,
        ),
        (
            "payment_intent_data[metadata][account]".to_owned(),
            order.account_id,
        ),
    ];
    // One that Stripe would refuse is typed there instead.
    if is_common(order.email) {
        fields.push(("customer_email".to_owned(), order.email));
    }
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut body = String::new();
    for (name, value) in fields {
        let separator = if body.is_empty() { "" } else { "&" };
        let _ = write!(body, "{separator}{}={}", encoded(&name), encoded(value));
    }
    Ok(body)
}

/// Whether an address is one that everybody takes for one.
fn is_common(email: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    email.split_once('@').is_some_and(|(who, host)| {
        let mut labels = host.split('.');
        let named = |label: &str| !label.is_empty();
        host.contains('.')
            && labels.all(named)
            && who.split('.').all(named)
            && who.bytes().chain(host.bytes()).all(plain)
    })
}

/// What Stripe said, in its own short words; its sentences may repeat what was sent.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        error: Words,
    }
    #[derive(Deserialize)]
    struct Words {
        #[serde(rename = "type")]
        kind: Option<String>,
        code: Option<String>,
        param: Option<String>,
    }
    let mut told = format!("status {}", status.as_u16());
    if let Ok(Refusal { error }) = serde_json::from_slice(body) {
        let short = |word: &String| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_[]".contains(&byte);
            word.len() <= 64 && word.bytes().all(plain)
        };
        let words = [error.kind, error.code, error.param];
        for word in words.into_iter().flatten().filter(short) {
            let _ = write!(told, ", {word}");
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_common_addresses_are_filled_in() {
        for common in ["ada@example.com", "a.b+c@mail.example.co.uk"] {
            assert!(is_common(common), "{common}");
        }
        for other in [
            "ada@localhost",
            "ada",
            "@example.com",
            "ada@example.",
            "a..b@example.com",
            "ädä@example.com",
            "a@b@example.com",
        ] {
            assert!(!is_common(other), "{other}");
        }
    }

    #[test]
    fn a_refusal_is_told_without_its_sentences() {
        let body = br#"{"error":{"type":"invalid_request_error","code":"amount_too_small",
            "param":"line_items[0][price_data]","message":"the key sk_live_1 was sent"}}"#;
        let told = "status 400, invalid_request_error, amount_too_small, line_items[0][price_data]";
        assert_eq!(refusal(StatusCode::BAD_REQUEST, body), told);
        assert_eq!(refusal(StatusCode::BAD_GATEWAY, b"<html>"), "status 502");
        let strange = br#"{"error":{"type":"sk live","code":null}}"#;
        assert_eq!(refusal(StatusCode::BAD_REQUEST, strange), "status 400");
    }
}
