//! Payments with a saved card, without the customer: the request, and what Stripe responds to it.

use serde::Deserialize;
use serde_json::Value;

use super::{Paid, Sum};
use crate::base::money::NanoUsd;

/// A payment with a saved card.
#[derive(Clone, Copy, Debug)]
pub struct CardPayment<'a> {
    /// The ID of the checkout. Repeating a payment with the same ID charges the card once.
    pub checkout: &'a str,
    pub account_id: &'a str,
    /// The provider's ID of the customer, and of the payment with which the card was saved.
    pub customer: &'a str,
    pub card: &'a str,
    /// Whole cents.
    pub amount: NanoUsd,
}

/// A payment with a saved card that may have been sent earlier.
#[derive(Clone, Copy, Debug)]
pub struct SentPayment<'a> {
    /// The ID of the checkout.
    pub checkout: &'a str,
    /// The provider's ID of this payment, if a response has told it.
    pub session: Option<&'a str>,
    /// The provider's ID of the customer, whose payments are searched if there is no `session`.
    pub customer: Option<&'a str>,
    /// It was not sent before this time.
    pub since: i64,
}

/// What became of a payment with a saved card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardOutcome {
    Paid(Paid),
    /// The bank has not decided yet; with the provider's ID of the payment.
    Pending(String),
    /// It was refused and will not succeed, in a few words for the customer.
    Refused(String),
}

/// Stripe's payment intent, as far as it is read.
#[derive(Deserialize)]
pub(super) struct Intent {
    pub id: String,
    #[serde(default)]
    status: String,
    amount_received: Option<i64>,
    currency: Option<String>,
    payment_method: Option<String>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
struct Metadata {
    top_up: Option<String>,
}

/// Stripe's list of payment intents, newest first.
#[derive(Deserialize)]
pub(super) struct Intents {
    data: Vec<Intent>,
}

impl Intents {
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// The payment for this checkout.
    pub(super) fn of(self, checkout: &str) -> Option<Intent> {
        let mut intents = self.data.into_iter();
        intents.find(|intent| intent.checkout() == Some(checkout))
    }
}

impl Intent {
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// The saved card.
    pub(super) fn card(self) -> Option<String> {
        self.payment_method
    }

    /// The checkout that a top-up belongs to.
    pub(super) fn checkout(&self) -> Option<&str> {
        self.metadata.top_up.as_deref()
    }

    /// What has become of the payment for this checkout; `None` if the response makes no sense.
    pub(super) fn outcome(self, checkout: &str) -> Option<CardOutcome> {
        Some(match self.status.as_str() {
            "succeeded" => CardOutcome::Paid(self.paid(checkout)?),
            "processing" => CardOutcome::Pending(self.id),
            "requires_action" | "requires_confirmation" => {
                CardOutcome::Refused("the bank asks for a confirmation by the card holder".into())
            }
            "requires_payment_method" | "canceled" => {
                CardOutcome::Refused("the card was declined".into())
            }
            _ => return None,
        })
    }

    pub(super) fn paid(self, checkout: &str) -> Option<Paid> {
        let cents = self.amount_received.filter(|cents| *cents > 0)?;
        let currency = self.currency?;
        let sum = if currency.eq_ignore_ascii_case("usd") {
            Sum::Usd(NanoUsd::from_cents(cents)?)
        } else {
            Sum::Foreign { currency }
        };
        Some(Paid {
            checkout: Some(checkout.to_owned()),
            session: self.id,
            sum,
            card: None,
        })
    }
}

/// Why a payment will not succeed, from the body of an error; `None` if that is not known.
pub(super) fn refusal(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let error = &body["error"];
    let code = error["code"].as_str().unwrap_or_default();
    let because = error["decline_code"].as_str().unwrap_or_default();
    match error["type"].as_str() {
        Some("card_error") => {}
        // E.g. the customer or the card was deleted. Nothing was charged.
        Some("invalid_request_error") => {
            return Some("the saved card cannot be used any more".into());
        }
        _ => return None,
    }
    Some(
        match (code, because) {
            ("authentication_required", _) | (_, "authentication_required") => {
                "the bank asks for a confirmation by the card holder"
            }
            ("expired_card", _) => "the card has expired",
            (_, "insufficient_funds") => "the card has insufficient funds",
            _ => "the card was declined",
        }
        .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(intent: &Value) -> Option<CardOutcome> {
        Intent::parse(intent.to_string().as_bytes())?.outcome("checkout_1")
    }

    #[test]
    fn only_money_that_was_received_is_paid() {
        let intent = |status: &str, received: i64| json!({ "id": "pi_1", "status": status, "amount": 2_000, "amount_received": received, "currency": "usd" });
        let Some(CardOutcome::Paid(paid)) = outcome(&intent("succeeded", 1_999)) else {
            panic!("it is paid");
        };
        assert_eq!(paid.sum, Sum::Usd(NanoUsd::new(19_990_000_000)));
        assert_eq!(
            (paid.session.as_str(), paid.checkout.as_deref()),
            ("pi_1", Some("checkout_1"))
        );
        assert_eq!(outcome(&intent("succeeded", 0)), None);
        let pending = outcome(&intent("processing", 0));
        assert_eq!(pending, Some(CardOutcome::Pending("pi_1".into())));
        for refused in ["requires_action", "requires_payment_method", "canceled"] {
            let refused = outcome(&intent(refused, 0));
            assert!(
                matches!(refused, Some(CardOutcome::Refused(_))),
                "{refused:?}"
            );
        }
        assert_eq!(outcome(&intent("new_status", 5)), None);
    }

    #[test]
    fn only_errors_of_the_card_and_the_request_are_refusals() {
        for (error, expected) in [
            (
                json!({ "type": "card_error", "code": "card_declined" }),
                Some("the card was declined"),
            ),
            (
                json!({ "type": "card_error", "code": "card_declined", "decline_code": "insufficient_funds" }),
                Some("the card has insufficient funds"),
            ),
            (
                json!({ "type": "card_error", "code": "authentication_required" }),
                Some("the bank asks for a confirmation by the card holder"),
            ),
            (
                json!({ "type": "invalid_request_error" }),
                Some("the saved card cannot be used any more"),
            ),
            (json!({ "type": "idempotency_error" }), None),
            (json!({ "type": "api_error" }), None),
            (json!(null), None),
        ] {
            let body = json!({ "error": error }).to_string();
            assert_eq!(refusal(body.as_bytes()).as_deref(), expected, "{body}");
        }
    }
}
