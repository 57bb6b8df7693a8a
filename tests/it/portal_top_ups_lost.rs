//! Auto top-up: payments whose outcome is not known are repeated or looked up, and charged and credited once.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    TestGateway,
    admin::rows,
    console::actions,
    portal::Browser,
    stripe::{FakeStripe, Fault, deliver},
    top_ups::{balance, begin_and_lose, look, set, turn_on},
};

const AT_MAXIMUM: &str = "Monthly maximum reached.";

/// What the account's page says about its automatic payment.
async fn shown(browser: &Browser) -> String {
    let billing = browser.get("/portal/billing").await;
    let payments = rows(billing.assert_page(), "Latest payments, newest first");
    let is_automatic = |row: &&Vec<String>| row[1].contains("Auto top-up");
    let attempt = payments.iter().find(is_automatic);
    attempt.expect("there is one")[3].clone()
}

#[tokio::test]
async fn a_lost_response_charges_and_credits_once() {
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let browser = Browser::signed_in(&gateway).await;
    let fault = Some(Fault::Hang);
    turn_on(&gateway, &stripe, &browser, ["5000", "20", "20"], fault).await;
    for minutes in (0..12).step_by(4) {
        look(&gateway, minutes).await;
    }
    assert_eq!(stripe.charged().len(), 1);
    assert_eq!(balance(&gateway, &browser.account_id).await, "1020.000000");
    let billing = browser.get("/portal/billing").await;
    for told in [
        "Processing",
        "$0.00 of $20.00 bought this month (UTC). $20.00 pending.<",
    ] {
        assert!(billing.assert_page().contains(told), "{told}");
    }
    assert!(!billing.text.contains(AT_MAXIMUM));
    stripe.break_with(None);
    look(&gateway, 16).await;
    look(&gateway, 20).await;
    assert_eq!(stripe.charged().len(), 1);
    assert_eq!(balance(&gateway, &browser.account_id).await, "1040.000000");
    let billing = browser.get("/portal/billing").await;
    for told in ["$20.00 of $20.00 bought this month (UTC).<", AT_MAXIMUM] {
        assert!(billing.assert_page().contains(told), "{told}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_open_attempt_is_not_sent_again_once_it_is_turned_off() {
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    // Whether the lost request has arrived or failed, it is only looked up.
    let no_trace = Fault::Answer(500, "{}");
    for (fault, closes, shown, sum) in [
        (Fault::Hang, false, "Paid", "1040.000000"),
        (Fault::Hang, true, "Paid", "1040.000000"),
        (no_trace, false, "Outcome unknown", "1020.000000"),
        (no_trace, true, "Outcome unknown", "1020.000000"),
    ] {
        let browser = Browser::signed_in(&gateway).await;
        let account = browser.account_id.clone();
        begin_and_lose(&gateway, &stripe, &browser, fault).await;
        if closes {
            let path = format!("/operator/accounts/{account}");
            let close = Some(json!({ "closed": true }));
            gateway
                .operate(Method::PATCH, &path, close)
                .await
                .assert_ok();
        } else {
            browser.get("/portal/billing").await.assert_page();
            let off = browser.post("/portal/billing/top-up/off", &[]).await;
            off.assert_sent_to("/portal/billing");
        }
        for minutes in [8, 12] {
            look(&gateway, minutes).await;
        }
        assert!(stripe.requests().is_empty(), "{shown}, closed: {closes}");
        assert_eq!(balance(&gateway, &account).await, sum);
        let billing = browser.get("/portal/billing").await;
        let payments = rows(billing.assert_page(), "Latest payments, newest first");
        let is_automatic = |row: &&Vec<String>| row[1].contains("Auto top-up");
        let attempt = payments.iter().find(is_automatic).unwrap();
        assert_eq!(attempt[3], shown, "{payments:?}");
        let log = actions(&gateway, Some(&account)).await;
        let recorded = |what| log.iter().any(|action| action.what == what);
        let is_unknown = shown == "Outcome unknown";
        assert_eq!(recorded("top_up.fail"), is_unknown && !closes);
        assert_eq!(recorded("top_up.pause"), is_unknown && closes);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_open_attempt_is_not_sent_again_once_other_settings_are_agreed_to() {
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let no_trace = Fault::Answer(500, "{}");
    let unknown = "$10.00 of $30.00 bought this month (UTC). $20.00 with unknown outcome";
    for (fault, bought, sum) in [
        (Fault::Hang, "$30.00 of $30.00 bought", "1050.000000"),
        (no_trace, unknown, "1030.000000"),
    ] {
        let browser = Browser::signed_in(&gateway).await;
        let account = browser.account_id.clone();
        begin_and_lose(&gateway, &stripe, &browser, fault).await;
        let form = browser.get("/portal/billing/top-up").await;
        assert!(form.assert_page().contains(">Save</button>"));
        let saved = set(&browser, ["5000", "10", "30"]).await;
        saved.assert_sent_to("/portal/billing");
        for minutes in [8, 12, 16] {
            look(&gateway, minutes).await;
        }
        let sent = stripe.requests();
        let amounts: Vec<_> = sent.iter().map(|sent| &sent.fields["amount"]).collect();
        assert_eq!(amounts, ["1000"], "20 dollars count, so one more is bought");
        assert_eq!(balance(&gateway, &account).await, sum);
        let billing = browser.get("/portal/billing").await;
        for told in [bought, AT_MAXIMUM, ">On<"] {
            assert!(billing.assert_page().contains(told), "{told}");
        }
        let log = actions(&gateway, Some(&account)).await;
        let recorded = |what| log.iter().any(|action| action.what == what);
        assert!(!recorded("top_up.pause"));
        assert_eq!(recorded("top_up.fail"), bought == unknown);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn after_a_day_an_attempt_is_looked_up_and_not_sent_again() {
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let browser = Browser::signed_in(&gateway).await;
    let fault = Fault::Answer(500, "{}");
    begin_and_lose(&gateway, &stripe, &browser, fault).await;
    look(&gateway, 23 * 60 + 10).await;
    assert!(stripe.requests().is_empty());
    let billing = browser.get("/portal/billing").await;
    for told in ["Outcome unknown", "we could not find out whether"] {
        assert!(billing.assert_page().contains(told), "{told}");
    }
    gateway.stop().await;
}

/// With a wrong key of the operator's, the provider does not know what it has told before.
#[tokio::test]
async fn a_key_of_another_account_neither_forgets_cards_nor_gives_up_payments() {
    const PROCESSING: &str =
        r#"{"id":"pi_7","status":"processing","amount_received":0,"currency":"usd"}"#;
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let settings = ["5000", "20", "20"];

    // The payment with which the card was saved.
    let browser = Browser::signed_in(&gateway).await;
    let unknown = Some(Fault::Unknown);
    turn_on(&gateway, &stripe, &browser, settings, unknown).await;
    for minutes in [0, 4, 8] {
        look(&gateway, minutes).await;
    }
    assert_eq!(shown(&browser).await, "Processing");
    let billing = browser.get("/portal/billing").await;
    assert!(billing.assert_page().contains(">On<"), "{}", billing.text);
    assert!(stripe.charged().is_empty());
    stripe.break_with(None);
    look(&gateway, 12).await;
    assert_eq!(shown(&browser).await, "Paid");
    assert_eq!(balance(&gateway, &browser.account_id).await, "1040.000000");

    // A payment whose response was lost is looked for among those of the customer.
    let browser = Browser::signed_in(&gateway).await;
    begin_and_lose(&gateway, &stripe, &browser, Fault::Hang).await;
    stripe.break_with(Fault::Unknown);
    browser.get("/portal/billing").await.assert_page();
    let off = browser.post("/portal/billing/top-up/off", &[]).await;
    off.assert_sent_to("/portal/billing");
    for minutes in [8, 12] {
        look(&gateway, minutes).await;
    }
    assert_eq!(shown(&browser).await, "Processing");
    stripe.break_with(None);
    look(&gateway, 16).await;
    assert_eq!(shown(&browser).await, "Paid");
    assert_eq!(balance(&gateway, &browser.account_id).await, "1040.000000");

    // A payment whose ID is known.
    let browser = Browser::signed_in(&gateway).await;
    let pending = Some(Fault::Answer(200, PROCESSING));
    turn_on(&gateway, &stripe, &browser, settings, pending).await;
    for minutes in [20, 24] {
        look(&gateway, minutes).await;
    }
    let mut sent = stripe.requests();
    sent.retain(|sent| sent.fields.contains_key("metadata[top_up]"));
    let checkout = sent.pop().unwrap().fields["metadata[top_up]"].clone();
    stripe.break_with(Fault::Unknown);
    for minutes in [28, 32] {
        look(&gateway, minutes).await;
    }
    assert_eq!(shown(&browser).await, "Processing");
    let billing = browser.get("/portal/billing").await;
    assert!(billing.assert_page().contains(">On<"), "{}", billing.text);
    let event = json!({
        "type": "payment_intent.succeeded",
        "data": { "object": {
            "id": "pi_7", "status": "succeeded", "amount_received": 2_000, "currency": "usd",
            "metadata": { "top_up": checkout },
        } },
    });
    deliver(gateway.public, &event).await.assert_ok();
    assert_eq!(balance(&gateway, &browser.account_id).await, "1040.000000");
    gateway.stop().await;
}
