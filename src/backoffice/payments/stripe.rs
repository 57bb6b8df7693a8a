//! Stripe Checkout: creates a session with a payment page for each order, and reads signed events.

use std::{fmt::Write as _, time::Duration};

use axum::http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use http_body_util::{BodyExt as _, Full, Limited};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::{
    BeginError, CardOutcome, CardPayment, EventError, Order, PaymentEvent, PaymentPage, Provider,
    SentPayment, event,
    saved_card::{self, Intent, Intents},
    signature,
};
use crate::{
    base::keys::Secret,
    config,
    net::connect::{self, chain},
};

const MAX_RESPONSE_BYTES: usize = 256 << 10;
/// Longest session ID that is accepted.
const MAX_SESSION_ID: usize = 255;
/// By how many seconds Stripe's clock may differ from ours.
const CLOCK_SKEW: i64 = 3_600;

pub(crate) struct Stripe {
    http: connect::Client,
    base_url: String,
    key: Secret,
    webhook_secret: Secret,
    timeout: Duration,
}

impl Stripe {
    pub(crate) fn new(config: &config::Stripe) -> Result<Self, String> {
        Ok(Self {
            http: connect::client(config.timeout)?,
            base_url: config.base_url.clone(),
            key: config.secret_key.clone(),
            webhook_secret: config.webhook_secret.clone(),
            timeout: config.timeout,
        })
    }

    async fn create_session(&self, order: &Order<'_>) -> Result<PaymentPage, BeginError> {
        let body = form(order)?;
        let path = "/v1/checkout/sessions";
        let (status, body) = self.send(path, Some((body, order.checkout))).await?;
        if status != StatusCode::OK {
            return Err(BeginError(refusal(status, &body)));
        }
        let session: Session = serde_json::from_slice(&body)
            .map_err(|_| BeginError("the response is not a checkout session".into()))?;
        self.payment_page(session)
    }

    async fn charge_card(&self, payment: &CardPayment<'_>) -> Result<CardOutcome, BeginError> {
        // The card is that of the payment with which it was saved.
        let saved = self.intent(payment.card).await?;
        let Some(card) = saved.card() else {
            return Ok(CardOutcome::Refused("no card is saved".into()));
        };
        let form = card_form(payment, &card)?;
        let sent = Some((form, payment.checkout));
        let (status, body) = self.send("/v1/payment_intents", sent).await?;
        match status {
            StatusCode::OK => {
                let intent = Intent::parse(&body).ok_or_else(strange)?;
                intent.outcome(payment.checkout).ok_or_else(strange)
            }
            StatusCode::PAYMENT_REQUIRED | StatusCode::BAD_REQUEST => {
                match saved_card::refusal(&body) {
                    Some(why) => Ok(CardOutcome::Refused(why)),
                    None => Err(BeginError(refusal(status, &body))),
                }
            }
            _ => Err(BeginError(refusal(status, &body))),
        }
    }

    async fn find_payment(
        &self,
        sent: &SentPayment<'_>,
    ) -> Result<Option<CardOutcome>, BeginError> {
        let intent = match (sent.session, sent.customer) {
            (Some(id), _) => Some(self.intent(id).await?),
            (None, Some(customer)) => self.intent_of(customer, sent).await?,
            (None, None) => None,
        };
        let outcome = |intent: Intent| intent.outcome(sent.checkout).ok_or_else(strange);
        intent.map(outcome).transpose()
    }

    /// The payment intent with this ID, which Stripe has told.
    async fn intent(&self, id: &str) -> Result<Intent, BeginError> {
        let (status, body) = self.send(&intent_path(id)?, None).await?;
        match status {
            StatusCode::OK => Intent::parse(&body).ok_or_else(strange),
            StatusCode::NOT_FOUND => Err(not_known("payment")),
            _ => Err(BeginError(refusal(status, &body))),
        }
    }

    /// The customer's payment intent for the checkout; `None` if it is not among their latest.
    async fn intent_of(
        &self,
        customer: &str,
        sent: &SentPayment<'_>,
    ) -> Result<Option<Intent>, BeginError> {
        let path = intents_path(customer, sent.since - CLOCK_SKEW)?;
        let (status, body) = self.send(&path, None).await?;
        match status {
            StatusCode::OK => {
                let intents = Intents::parse(&body).ok_or_else(strange)?;
                Ok(intents.of(sent.checkout))
            }
            StatusCode::NOT_FOUND => Err(not_known("customer")),
            _ => Err(BeginError(refusal(status, &body))),
        }
    }

    /// Sends a form with an idempotency key, or a GET without one. Returns status and body.
    async fn send(
        &self,
        path: &str,
        form: Option<(String, &str)>,
    ) -> Result<(StatusCode, Bytes), BeginError> {
        let request = self.request(path, form)?;
        let response = self.http.request(request).await;
        let response = response.map_err(|error| BeginError(chain(&error)))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES);
        let body = body.collect().await;
        let body = body.map_err(|_| BeginError("the response broke off or is too long".into()))?;
        Ok((status, body.to_bytes()))
    }

    fn request(
        &self,
        path: &str,
        form: Option<(String, &str)>,
    ) -> Result<Request<Full<Bytes>>, BeginError> {
        let uri: Result<Uri, _> = format!("{}{path}", self.base_url).parse();
        let uri = uri.map_err(|error| BeginError(error.to_string()))?;
        let agent = concat!("tollgate/", env!("CARGO_PKG_VERSION"));
        let mut request = Request::builder()
            .uri(uri)
            .header(
                header::AUTHORIZATION,
                format!("Bearer {}", self.key.reveal()),
            )
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::USER_AGENT, agent);
        let mut body = String::new();
        if let Some((form, idempotency_key)) = form {
            request = request
                .method(Method::POST)
                .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                // A repeated request returns the result of the first one.
                .header("idempotency-key", idempotency_key);
            body = form;
        }
        request.body(Full::new(body.into())).map_err(|_| {
            BeginError("the secret key contains characters that a header cannot have".into())
        })
    }

    fn payment_page(&self, session: Session) -> Result<PaymentPage, BeginError> {
        let is_id = !session.id.is_empty()
            && session.id.len() <= MAX_SESSION_ID
            && session.id.bytes().all(|byte| byte.is_ascii_graphic());
        // The browser is redirected there, so it must be HTTPS, unless the configured API itself is plain HTTP.
        let is_safe = |uri: &Uri| match uri.scheme_str() {
            Some("https") => true,
            Some("http") => self.base_url.starts_with("http://"),
            _ => false,
        };
        let uri: Option<Uri> = session.url.parse().ok();
        if !is_id || !uri.is_some_and(|uri| is_safe(&uri)) {
            return Err(BeginError("the response has no payment page".into()));
        }
        Ok(PaymentPage {
            session: session.id,
            url: session.url,
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

    fn begin<'a>(&'a self, order: &'a Order<'a>) -> BoxFuture<'a, Result<PaymentPage, BeginError>> {
        let timed_out = |_| Err(BeginError("the request timed out".into()));
        let creating = tokio::time::timeout(self.timeout, self.create_session(order));
        creating
            .map(move |created| created.unwrap_or_else(timed_out))
            .boxed()
    }

    fn charge<'a>(
        &'a self,
        payment: &'a CardPayment<'a>,
    ) -> BoxFuture<'a, Result<CardOutcome, BeginError>> {
        let timed_out = |_| Err(BeginError("the request timed out".into()));
        let charging = tokio::time::timeout(self.timeout, self.charge_card(payment));
        charging
            .map(move |charged| charged.unwrap_or_else(timed_out))
            .boxed()
    }

    fn find<'a>(
        &'a self,
        payment: &'a SentPayment<'a>,
    ) -> BoxFuture<'a, Result<Option<CardOutcome>, BeginError>> {
        let timed_out = |_| Err(BeginError("the request timed out".into()));
        let finding = tokio::time::timeout(self.timeout, self.find_payment(payment));
        finding
            .map(move |found| found.unwrap_or_else(timed_out))
            .boxed()
    }

    fn read(&self, headers: &HeaderMap, body: &[u8], now: i64) -> Result<PaymentEvent, EventError> {
        signature::check(&self.webhook_secret, headers, body, now)?;
        event::read(body)
    }
}

/// Stripe's checkout session, as far as it is read.
#[derive(Deserialize)]
struct Session {
    id: String,
    url: String,
}

fn form(order: &Order<'_>) -> Result<String, BeginError> {
    let cents = order.amount.whole_cents();
    let cents = cents.ok_or_else(|| BeginError("the amount is not in whole cents".into()))?;
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
        // Keeps Stripe from converting the amount to the customer's currency.
        ("adaptive_pricing[enabled]".to_owned(), "false"),
        // Shown in Stripe's dashboard; the gateway does not read it.
        (
            "payment_intent_data[metadata][checkout]".to_owned(),
            order.checkout,
        ),
        (
            "payment_intent_data[metadata][account]".to_owned(),
            order.account_id,
        ),
    ];
    if order.saves_card {
        fields.push(("customer_creation".to_owned(), "always"));
        let usage = "payment_intent_data[setup_future_usage]".to_owned();
        fields.push((usage, "off_session"));
    }
    // With an address that Stripe would refuse, the field is left out and the customer types it on the page.
    if is_plain(order.email) {
        fields.push(("customer_email".to_owned(), order.email));
    }
    Ok(encode(&fields))
}

/// A payment without the customer, who is told by email if it fails.
fn card_form(payment: &CardPayment<'_>, card: &str) -> Result<String, BeginError> {
    let cents = payment.amount.whole_cents();
    let cents = cents.ok_or_else(|| BeginError("the amount is not in whole cents".into()))?;
    let cents = cents.to_string();
    let fields = [
        ("amount", cents.as_str()),
        ("currency", "usd"),
        ("customer", payment.customer),
        ("payment_method", card),
        ("payment_method_types[0]", "card"),
        ("off_session", "true"),
        ("confirm", "true"),
        ("description", "Credit (automatic top-up)"),
        // Names the checkout in the event of the payment.
        ("metadata[top_up]", payment.checkout),
        ("metadata[account]", payment.account_id),
    ];
    Ok(encode(
        &fields.map(|(name, value)| (name.to_owned(), value)),
    ))
}

/// The path of a payment intent.
fn intent_path(id: &str) -> Result<String, BeginError> {
    let path = is_id(id).then(|| format!("/v1/payment_intents/{id}"));
    path.ok_or_else(|| BeginError("the stored ID of a payment cannot be used".into()))
}

/// The path of a customer's latest payment intents.
fn intents_path(customer: &str, since: i64) -> Result<String, BeginError> {
    let path = is_id(customer).then(|| {
        format!("/v1/payment_intents?customer={customer}&created%5Bgte%5D={since}&limit=20")
    });
    path.ok_or_else(|| BeginError("the stored ID of a customer cannot be used".into()))
}

fn is_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !id.is_empty() && id.len() <= MAX_SESSION_ID && id.bytes().all(plain)
}

/// An ID that Stripe has told is unknown there. A wrong key of the operator's is no reason to give up payments or to forget
/// the cards of customers.
fn not_known(what: &str) -> BeginError {
    BeginError(format!(
        "the {what} is not known there: is the key of another account or mode?"
    ))
}

fn strange() -> BeginError {
    BeginError("the response is not what Stripe documents for payment intents".into())
}

fn encode(fields: &[(String, &str)]) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut body = String::new();
    for (name, value) in fields {
        let separator = if body.is_empty() { "" } else { "&" };
        let _ = write!(body, "{separator}{}={}", encoded(name), encoded(value));
    }
    body
}

/// Whether an address has a plain form that any provider accepts.
fn is_plain(email: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    email.split_once('@').is_some_and(|(local, host)| {
        let mut labels = host.split('.');
        let named = |label: &str| !label.is_empty();
        host.contains('.')
            && labels.all(named)
            && local.split('.').all(named)
            && local.bytes().chain(host.bytes()).all(plain)
    })
}

/// Status and error codes of Stripe's response. Leaves out its message, which may repeat what was sent.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        error: Codes,
    }
    #[derive(Deserialize)]
    struct Codes {
        #[serde(rename = "type")]
        kind: Option<String>,
        code: Option<String>,
        param: Option<String>,
    }
    let mut reason = format!("status {}", status.as_u16());
    if let Ok(Refusal { error }) = serde_json::from_slice(body) {
        let is_code = |text: &String| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_[]".contains(&byte);
            text.len() <= 64 && text.bytes().all(plain)
        };
        let codes = [error.kind, error.code, error.param];
        for code in codes.into_iter().flatten().filter(is_code) {
            let _ = write!(reason, ", {code}");
        }
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_are_sent_to_stripe() {
        for plain in ["ada@example.com", "a.b+c@mail.example.co.uk"] {
            assert!(is_plain(plain), "{plain}");
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
            assert!(!is_plain(other), "{other}");
        }
    }

    #[test]
    fn a_refusal_has_the_codes_but_not_the_message() {
        let body = br#"{"error":{"type":"invalid_request_error","code":"amount_too_small",
            "param":"line_items[0][price_data]","message":"the key sk_live_1 was sent"}}"#;
        let reason =
            "status 400, invalid_request_error, amount_too_small, line_items[0][price_data]";
        assert_eq!(refusal(StatusCode::BAD_REQUEST, body), reason);
        assert_eq!(refusal(StatusCode::BAD_GATEWAY, b"<html>"), "status 502");
        let strange = br#"{"error":{"type":"sk live","code":null}}"#;
        assert_eq!(refusal(StatusCode::BAD_REQUEST, strange), "status 400");
    }
}
