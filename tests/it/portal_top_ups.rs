//! Auto top-up: consent, whose card is charged, the maximum of a month with parallel gateways, and failed payments.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::backoffice::Role;

use crate::support::{
    TestGateway,
    admin::rows,
    console::actions,
    portal::{Browser, PASSWORD},
    smtp::FakeSmtp,
    stores,
    stripe::{FakeStripe, Fault, deliver, paid_and_saved},
    top_ups::{balance, look, set, turn_on},
};

const DECLINED: &str =
    r#"{"error":{"type":"card_error","code":"card_declined","decline_code":"insufficient_funds"}}"#;

/// Two people leave for the provider's page, and the first one pays: the card is not charged by what the second agreed to.
#[tokio::test]
async fn a_card_is_saved_only_for_the_settings_that_it_paid_for() {
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let browser = Browser::signed_in(&gateway).await;
    let mut left = Vec::new();
    for settings in [["5", "20", "50"], ["5000", "500", "500"]] {
        let leaving = set(&browser, settings).await;
        leaving.assert_page();
        let session = leaving.between("/pay/", "\"").to_owned();
        let request = stripe.requests().pop().unwrap();
        left.push((request.fields["client_reference_id"].clone(), session));
    }
    for ((checkout, session), cents, told) in [
        (&left[0], 2_000, "Waiting for a card"),
        (&left[1], 50_000, "$500.00"),
    ] {
        let event = paid_and_saved(checkout, session, cents);
        deliver(gateway.public, &event).await.assert_ok();
        let billing = browser.get("/portal/billing").await;
        assert!(billing.assert_page().contains(told), "{}", billing.text);
    }
    let billing = browser.get("/portal/billing").await;
    assert!(!billing.text.contains("Waiting for a card"));
    let balance = balance(&gateway, &browser.account_id).await;
    assert!(
        ["1520.000000", "2020.000000"].contains(&balance.as_str()),
        "{balance}"
    );
    gateway.stop().await;
}

/// A card is not charged by settings of another member, who has to pay with their own.
#[tokio::test]
async fn settings_of_another_member_do_not_charge_the_saved_card() {
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let browser = Browser::signed_in(&gateway).await;
    turn_on(&gateway, &stripe, &browser, ["5", "20", "50"], None).await;
    let other = browser.member(&gateway, "billing").await;
    let form = other.get("/portal/billing/top-up").await;
    let replaces = format!("The card of {} is not charged any more.", browser.email);
    for told in ["Continue to payment", &replaces] {
        assert!(form.assert_page().contains(told), "{told}: {}", form.text);
    }
    let leaving = set(&other, ["5000", "500", "500"]).await;
    leaving.assert_page();
    let session = leaving.between("/pay/", "\"").to_owned();
    let request = stripe.requests().pop().unwrap();
    let checkout = request.fields["client_reference_id"].clone();
    look(&gateway, 0).await;
    look(&gateway, 4).await;
    assert_eq!(stripe.charged().len(), 0);
    let account = &browser.account_id;
    assert_eq!(balance(&gateway, account).await, "1020.000000");
    let billing = other.get("/portal/billing").await;
    assert!(billing.assert_page().contains("Waiting for a card"));
    let event = paid_and_saved(&checkout, &session, 50_000);
    deliver(gateway.public, &event).await.assert_ok();
    look(&gateway, 8).await;
    look(&gateway, 12).await;
    assert_eq!(stripe.charged().into_values().sum::<i64>(), 50_000);
    assert_eq!(balance(&gateway, account).await, "2020.000000");
    gateway.stop().await;
}

#[tokio::test]
async fn credit_is_bought_up_to_the_maximum_of_the_month() {
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let browser = Browser::signed_in(&gateway).await;
    let account = browser.account_id.clone();
    for (wrong, told) in [
        (["", "20", "50"], "balance below which"),
        (["5", "4.99", "50"], "not available"),
        (["5", "20.001", "50"], "not available"),
        (["5", "20", "19"], "monthly maximum"),
        (["5", "20", "100001"], "monthly maximum"),
    ] {
        let refused = set(&browser, wrong).await;
        assert_eq!(refused.status, 400, "{wrong:?}");
        assert!(refused.text.contains(told), "{told}: {}", refused.text);
    }
    let without_consent = [("threshold", "5"), ("amount", "20"), ("monthly_max", "50")];
    let refused = browser.post("/portal/billing/top-up", &without_consent);
    assert_eq!(refused.await.status, 400);
    assert_eq!(stripe.requests().len(), 0);

    // The balance stays below the threshold, so that only the maximum stops it. Many looks happen at once.
    turn_on(&gateway, &stripe, &browser, ["5000", "20", "50"], None).await;
    for minutes in (0..12).step_by(4) {
        join_all((0..6).map(|_| look(&gateway, minutes))).await;
    }
    assert_eq!(
        stripe.charged().into_values().collect::<Vec<_>>(),
        [2_000, 2_000]
    );
    assert_eq!(balance(&gateway, &account).await, "1060.000000");
    let request = stripe.requests().remove(0);
    for (name, value) in [
        ("customer", "cus_1"),
        ("payment_method", "pm_1"),
        ("off_session", "true"),
        ("confirm", "true"),
        ("amount", "2000"),
    ] {
        assert_eq!(request.fields[name], value, "{name}");
    }
    // Stripe's event for the same payment adds nothing.
    let checkout = &request.fields["metadata[top_up]"];
    let event = json!({
        "type": "payment_intent.succeeded",
        "data": { "object": {
            "id": format!("pi_{}", &checkout["checkout_".len()..]), "status": "succeeded",
            "amount_received": 2_000, "currency": "usd", "metadata": { "top_up": checkout },
        } },
    });
    deliver(gateway.public, &event).await.assert_ok();
    assert_eq!(balance(&gateway, &account).await, "1060.000000");
    let billing = browser.get("/portal/billing").await;
    for told in [
        "$40.00 of $50.00 bought this month (UTC).<",
        "<strong>Monthly maximum reached.</strong> No more credit is bought until 1 ",
    ] {
        assert!(billing.assert_page().contains(told), "{told}");
    }
    let payments = rows(&billing.text, "Latest payments, newest first");
    assert_eq!(payments.len(), 4, "{payments:?}");
    assert!(payments[1][1].contains("Auto top-up"), "{payments:?}");

    let off = browser.post("/portal/billing/top-up/off", &[]).await;
    off.assert_sent_to("/portal/billing");
    let log = actions(&gateway, Some(&account)).await;
    let set = log
        .iter()
        .find(|action| action.what == "top_up.set")
        .unwrap();
    let after: Value = serde_json::from_str(set.after.as_ref().unwrap()).unwrap();
    let consent = after["consent"].as_str().unwrap();
    for told in [
        "below $5,000.00, buy $20.00, at most $50.00 a month",
        "turn this off",
    ] {
        assert!(consent.contains(told), "{consent}");
    }
    assert_eq!(set.actor, browser.email);
    assert!(log.iter().any(|action| action.what == "top_up.off"));

    // Turned on again with the saved card, it can be turned off by the confirmation; a change of its settings cannot.
    for (amount, undone) in [("20", true), ("25", false)] {
        let fields = [
            ("threshold", "5"),
            ("amount", amount),
            ("monthly_max", "50"),
            ("consent", "yes"),
        ];
        let on = browser.post("/portal/billing/top-up", &fields).await;
        on.assert_sent_to("/portal/billing");
        let billing = browser.get("/portal/billing").await;
        assert!(billing.assert_page().contains("Auto top-up is on."));
        let undo = "action=\"/portal/billing/top-up/off\"";
        assert_eq!(billing.text.contains(undo), undone, "{amount}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_declined_card_pauses_and_tells_people() {
    let (stripe, smtp) = (FakeStripe::start().await, FakeSmtp::start().await);
    let section = format!("{}{}", stripe.section(), smtp.section());
    let gateway = TestGateway::start_with(&section).await;
    let (email, role) = ("ada@example.com", Role::Customer);
    let enrolled = tollgate::portal::enrol(gateway.inside(), email, None, PASSWORD, role).await;
    let account = enrolled.unwrap().account_id;
    let browser = Browser::new(&gateway);
    browser
        .sign_in(email, PASSWORD)
        .await
        .assert_sent_to("/portal");
    let declined = Some(Fault::Answer(402, DECLINED));
    turn_on(&gateway, &stripe, &browser, ["50", "20", "100"], declined).await;
    look(&gateway, 0).await;
    look(&gateway, 4).await;
    let mail = smtp.next_mail().await;
    assert_eq!(mail.to, email);
    assert!(
        mail.text.contains("the card has insufficient funds"),
        "{}",
        mail.text
    );
    assert!(smtp.is_empty());
    assert_eq!(stripe.charged().len(), 0);
    assert_eq!(balance(&gateway, &account).await, "20.000000");
    let billing = browser.get("/portal/billing").await;
    for told in [
        "Auto top-up is paused: the card has insufficient funds",
        "Failed",
    ] {
        assert!(billing.assert_page().contains(told), "{told}");
    }
    let log = actions(&gateway, Some(&account)).await;
    assert!(log.iter().any(|action| action.what == "top_up.pause"));
    // It needs another payment, with which another card is saved.
    stripe.break_with(None);
    stripe.requests();
    turn_on(&gateway, &stripe, &browser, ["50", "20", "100"], None).await;
    look(&gateway, 10).await;
    look(&gateway, 14).await;
    assert_eq!(balance(&gateway, &account).await, "60.000000");
    // No more is allowed this month, which is told once.
    for most in ["30", "35"] {
        let saved = set(&browser, ["5000", "20", most]).await;
        saved.assert_sent_to("/portal/billing");
        look(&gateway, 18).await;
        look(&gateway, 22).await;
    }
    let mail = smtp.next_mail().await;
    assert_eq!(mail.to, email);
    for told in [
        "monthly maximum of $30.00",
        "below $5000.00, and no more credit is bought until 20",
    ] {
        assert!(mail.text.contains(told), "{told}: {}", mail.text);
    }
    assert!(smtp.is_empty());
    assert_eq!(balance(&gateway, &account).await, "60.000000");
    gateway.stop().await;
}

#[tokio::test]
async fn two_gateways_stay_within_the_maximum_together() {
    if !stores::are_shared() {
        return;
    }
    let stripe = FakeStripe::start().await;
    let first = TestGateway::start_with(&stripe.section()).await;
    let data = TempDir::new().unwrap();
    stores::same_database(first.data.path(), data.path());
    let second = TestGateway::start_in(data, &stripe.section()).await;
    let browser = Browser::signed_in(&first).await;
    turn_on(&first, &stripe, &browser, ["5000", "20", "50"], None).await;
    for minutes in (0..12).step_by(4) {
        let both = (0..6).map(|number| look([&first, &second][number % 2], minutes));
        join_all(both).await;
    }
    assert_eq!(stripe.charged().into_values().sum::<i64>(), 4_000);
    assert_eq!(balance(&second, &browser.account_id).await, "1060.000000");
    second.stop().await;
    first.stop().await;
}
