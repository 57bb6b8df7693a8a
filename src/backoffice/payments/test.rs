//! Test payments, in which no money moves: a page of the portal replaces Stripe's, and events have Stripe's format and
//! signature.

use axum::http::{HeaderMap, HeaderValue};
use futures_util::{FutureExt as _, future::BoxFuture};
use serde_json::json;

use super::{
    BeginError, CardOutcome, CardPayment, EventError, Order, Paid, PaymentEvent, PaymentPage,
    Provider, SentPayment, Sum, event, signature,
};
use crate::base::{keys::Secret, money::NanoUsd};

/// The name of the test provider in the store.
pub(crate) const TEST_PROVIDER: &str = "test";

/// The test provider, with a random signing secret that never leaves the process.
pub struct TestPayments(Secret);

impl TestPayments {
    pub(crate) fn new() -> Self {
        Self(Secret::generate())
    }

    /// Headers and body of the event that a provider sends when a checkout is paid.
    pub(crate) fn event(&self, checkout: &str, amount: NanoUsd, now: i64) -> (HeaderMap, Vec<u8>) {
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
                "customer": "cus_test",
                "payment_intent": "pi_test",
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
        TEST_PROVIDER
    }

    fn name(&self) -> &'static str {
        "Test payment"
    }

    fn event_path(&self) -> Option<&'static str> {
        None
    }

    fn begin<'a>(&'a self, order: &'a Order<'a>) -> BoxFuture<'a, Result<PaymentPage, BeginError>> {
        let begun = PaymentPage {
            session: session(order.checkout),
            url: format!("/portal/billing/test-payment/{}", order.checkout),
        };
        std::future::ready(Ok(begun)).boxed()
    }

    /// The pretended card pays at once.
    fn charge<'a>(
        &'a self,
        payment: &'a CardPayment<'a>,
    ) -> BoxFuture<'a, Result<CardOutcome, BeginError>> {
        let paid = Paid {
            checkout: Some(payment.checkout.to_owned()),
            session: session(payment.checkout),
            sum: Sum::Usd(payment.amount),
            card: None,
        };
        std::future::ready(Ok(CardOutcome::Paid(paid))).boxed()
    }

    /// Nothing is stored about the pretended payments.
    fn find<'a>(
        &'a self,
        _: &'a SentPayment<'a>,
    ) -> BoxFuture<'a, Result<Option<CardOutcome>, BeginError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn read(&self, headers: &HeaderMap, body: &[u8], now: i64) -> Result<PaymentEvent, EventError> {
        signature::check(&self.0, headers, body, now)?;
        event::read(body)
    }
}

fn session(checkout: &str) -> String {
    format!("cs_{checkout}")
}
