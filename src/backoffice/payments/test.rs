//! Payments that only pretend, for trying things out: a page of ours in the place of Stripe's, and
//! events in the same words with the same kind of signature. No money moves.

use axum::http::{HeaderMap, HeaderValue};
use futures_util::{FutureExt as _, future::BoxFuture};
use serde_json::json;

use super::{BeginError, Begun, Delivered, Order, Provider, Refused, event, signature};
use crate::base::{keys::Secret, money::NanoUsd};

/// With a secret of its own, which nobody else ever has.
pub struct TestPayments(Secret);

impl TestPayments {
    pub fn new() -> Self {
        Self(Secret::generate())
    }

    /// What would be delivered once a checkout is paid.
    pub fn event(&self, checkout: &str, amount: NanoUsd, now: i64) -> (HeaderMap, Vec<u8>) {
        let body = json!({
            "type": event::COMPLETED,
            "created": now,
            "data": { "object": {
                "id": session(checkout),
                "object": "checkout.session",
                "client_reference_id": checkout,
                "payment_status": "paid",
                "amount_total": amount.whole_cents(),
                "currency": "usd",
            } },
        });
        let body = body.to_string().into_bytes();
        let signature = signature::sign(&self.0, &body, now);
        let signature = HeaderValue::try_from(signature).ok();
        let headers = signature.map(|signature| (signature::HEADER, signature));
        (headers.into_iter().collect(), body)
    }
}

impl Default for TestPayments {
    fn default() -> Self {
        Self::new()
    }
}

impl Provider for TestPayments {
    fn key(&self) -> &'static str {
        "test"
    }

    fn name(&self) -> &'static str {
        "Test payment"
    }

    fn event_path(&self) -> Option<&'static str> {
        None
    }

    fn begin<'a>(&'a self, order: &'a Order<'a>) -> BoxFuture<'a, Result<Begun, BeginError>> {
        let begun = Begun {
            session: session(order.checkout),
            url: format!("/portal/billing/test-payment/{}", order.checkout),
        };
        std::future::ready(Ok(begun)).boxed()
    }

    fn read(&self, headers: &HeaderMap, body: &[u8], now: i64) -> Result<Delivered, Refused> {
        signature::check(&self.0, headers, body, now)?;
        event::read(body)
    }
}

fn session(checkout: &str) -> String {
    format!("cs_{checkout}")
}
