//! Parses checkout events in Stripe's format.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{EventError, Paid, PaymentEvent, Sum, saved_card::Intent};
use crate::base::money::NanoUsd;

/// A checkout was completed; with a delayed payment method it is not paid yet.
pub(crate) const COMPLETED: &str = "checkout.session.completed";
/// The payment with a delayed method has succeeded.
const PAID_LATER: &str = "checkout.session.async_payment_succeeded";
/// A payment with a saved card has succeeded.
const TOPPED_UP: &str = "payment_intent.succeeded";

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: String,
    /// Parsed later, because other kinds of events have other data.
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Data {
    object: Session,
}

#[derive(Deserialize)]
struct Session {
    id: String,
    client_reference_id: Option<String>,
    payment_status: String,
    /// In the smallest unit of the currency, e.g. cents.
    amount_total: Option<i64>,
    currency: Option<String>,
    /// Both are there if a card was saved.
    customer: Option<String>,
    payment_intent: Option<String>,
}

#[derive(Deserialize)]
struct IntentData {
    object: Intent,
}

/// Parses an event whose signature was checked.
pub(crate) fn read(body: &[u8]) -> Result<PaymentEvent, EventError> {
    let event: Event<'_> = serde_json::from_slice(body).map_err(|_| EventError::Unreadable)?;
    if event.kind == TOPPED_UP {
        return top_up(event.data.ok_or(EventError::Unreadable)?);
    }
    if event.kind != COMPLETED && event.kind != PAID_LATER {
        return Ok(PaymentEvent::Other);
    }
    let data = event.data.ok_or(EventError::Unreadable)?;
    let data: Data = serde_json::from_str(data.get()).map_err(|_| EventError::Unreadable)?;
    let session = data.object;
    if session.payment_status != "paid" {
        return Ok(PaymentEvent::Other);
    }
    let (Some(total), Some(currency)) = (session.amount_total, session.currency) else {
        return Err(EventError::Unreadable);
    };
    if total <= 0 {
        return Ok(PaymentEvent::Other);
    }
    let sum = if currency.eq_ignore_ascii_case("usd") {
        Sum::Usd(NanoUsd::from_cents(total).ok_or(EventError::Unreadable)?)
    } else {
        Sum::Foreign { currency }
    };
    Ok(PaymentEvent::Paid(Paid {
        checkout: session.client_reference_id,
        session: session.id,
        sum,
        card: session.customer.zip(session.payment_intent),
    }))
}

/// A payment with a saved card. Other payments are credited by the event of their checkout.
fn top_up(data: &RawValue) -> Result<PaymentEvent, EventError> {
    let data: IntentData = serde_json::from_str(data.get()).map_err(|_| EventError::Unreadable)?;
    let intent = data.object;
    let Some(checkout) = intent.checkout().map(str::to_owned) else {
        return Ok(PaymentEvent::Other);
    };
    let paid = intent.paid(&checkout).ok_or(EventError::Unreadable)?;
    Ok(PaymentEvent::Paid(paid))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(change: &Value) -> Vec<u8> {
        let mut object = json!({
            "id": "cs_1", "object": "checkout.session", "client_reference_id": "checkout_1",
            "payment_status": "paid", "amount_total": 1_999, "currency": "usd",
        });
        for (name, value) in change.as_object().unwrap() {
            object[name] = value.clone();
        }
        json!({ "id": "evt_1", "type": COMPLETED, "data": { "object": object } })
            .to_string()
            .into_bytes()
    }

    #[test]
    fn a_payment_is_read_to_the_cent() {
        let paid = |sum| {
            Ok(PaymentEvent::Paid(Paid {
                checkout: Some("checkout_1".into()),
                session: "cs_1".into(),
                sum,
                card: None,
            }))
        };
        let dollars = Sum::Usd(NanoUsd::new(19_990_000_000));
        assert_eq!(read(&event(&json!({}))), paid(dollars.clone()));
        assert_eq!(read(&event(&json!({ "currency": "USD" }))), paid(dollars));
        let currency = "eur".to_owned();
        let euros = read(&event(&json!({ "currency": currency })));
        assert_eq!(euros, paid(Sum::Foreign { currency }));
    }

    #[test]
    fn a_saved_card_and_a_top_up_are_read() {
        let saved = json!({ "customer": "cus_1", "payment_intent": "pi_1" });
        let Ok(PaymentEvent::Paid(paid)) = read(&event(&saved)) else {
            panic!("it is paid");
        };
        assert_eq!(paid.card, Some(("cus_1".into(), "pi_1".into())));
        let intent = |metadata: Value| {
            let object = json!({
                "id": "pi_2", "status": "succeeded", "amount_received": 2_000, "currency": "usd",
                "metadata": metadata,
            });
            json!({ "type": TOPPED_UP, "data": { "object": object } })
                .to_string()
                .into_bytes()
        };
        let Ok(PaymentEvent::Paid(paid)) = read(&intent(json!({ "top_up": "checkout_2" }))) else {
            panic!("it is paid");
        };
        assert_eq!(paid.checkout.as_deref(), Some("checkout_2"));
        assert_eq!(paid.session, "pi_2");
        // The payment of a checkout is credited by the checkout's own event.
        let of_checkout = read(&intent(json!({ "checkout": "checkout_1" })));
        assert_eq!(of_checkout, Ok(PaymentEvent::Other));
    }

    #[test]
    fn other_events_are_ignored_and_unreadable_ones_refused() {
        for other in [
            event(&json!({ "payment_status": "unpaid" })),
            event(&json!({ "payment_status": "no_payment_required", "amount_total": 0 })),
            event(&json!({ "amount_total": 0 })),
            event(&json!({ "amount_total": -5 })),
            br#"{"type":"customer.created","data":7}"#.to_vec(),
            br#"{"type":"ping"}"#.to_vec(),
        ] {
            assert_eq!(read(&other), Ok(PaymentEvent::Other));
        }
        for unreadable in [
            Vec::new(),
            b"{".to_vec(),
            b"\xff".to_vec(),
            br#"{"data":{}}"#.to_vec(),
            event(&json!({ "amount_total": null })),
            event(&json!({ "amount_total": 19.99 })),
            event(&json!({ "amount_total": i64::MAX })),
            event(&json!({ "currency": null })),
            event(&json!({ "id": null })),
        ] {
            assert_eq!(read(&unreadable), Err(EventError::Unreadable));
        }
    }
}
