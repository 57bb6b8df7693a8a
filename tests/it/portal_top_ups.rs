//! Auto top-up: consent, the maximum of a month with parallel gateways and lost responses, and failed payments.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::{backoffice::Role, base::timestamp::now, gateway::top_ups};

use crate::support::{
    TestGateway,
    admin::{not_at_midnight, rows},
    console::actions,
    portal::{Browser, PASSWORD, Seen},
    smtp::FakeSmtp,
    stores,
    stripe::{FakeStripe, Fault, deliver, paid_and_saved},
};

const DECLINED: &str =
    r#"{"error":{"type":"card_error","code":"card_declined","decline_code":"insufficient_funds"}}"#;

const AT_MAXIMUM: &str = "Monthly maximum reached.";

async fn balance(gateway: &TestGateway, account_id: &str) -> String {
    let path = format!("/operator/accounts/{account_id}");
    let answer = gateway.operate(Method::GET, &path, None).await;
    answer.assert_ok()["balance"].as_str().unwrap().to_owned()
}

/// Agrees to settings in these dollars.
async fn set(browser: &Browser, [threshold, amount, monthly_max]: [&str; 3]) -> Seen {
    browser.get("/portal/billing/top-up").await.assert_page();
    let fields = [
        ("threshold", threshold),
        ("amount", amount),
        ("monthly_max", monthly_max),
        ("consent", "yes"),
    ];
    browser.post("/portal/billing/top-up", &fields).await
}

/// Turns it on with these dollars, and pays once; from then on the provider has this fault. The gateway's own job may
/// look at the account at any time after that.
async fn turn_on(
    gateway: &TestGateway,
    stripe: &FakeStripe,
    browser: &Browser,
    settings: [&str; 3],
    fault: Option<Fault>,
) {
    // The tests are about one month.
    not_at_midnight().await;
    let leaving = set(browser, settings).await;
    leaving.assert_page();
    let session = leaving.between("/pay/", "\"").to_owned();
    let request = stripe.requests().pop().unwrap();
    assert_eq!(request.fields["customer_creation"], "always");
    let usage = "payment_intent_data[setup_future_usage]";
    assert_eq!(request.fields[usage], "off_session");
    let checkout = request.fields["client_reference_id"].clone();
    let cents: i64 = request.fields["line_items[0][price_data][unit_amount]"]
        .parse()
        .unwrap();
    let billing = browser.get("/portal/billing").await;
    assert!(billing.assert_page().contains("Waiting for a card"));
    let event = paid_and_saved(&checkout, &session, cents);
    stripe.break_with(fault);
    deliver(gateway.public, &event).await.assert_ok();
}

/// A look at all accounts, so many minutes from now. The gateway's own job looks too. Payments are of the month that it is
/// now.
async fn look(gateway: &TestGateway, minutes: i64) {
    let clock = || now() + 60 * minutes;
    top_ups::round(gateway.inside(), clock).await.unwrap();
}

/// Turns it on with a fault at the provider, looks until an attempt is open, and mends the provider.
async fn begin_and_lose(
    gateway: &TestGateway,
    stripe: &FakeStripe,
    browser: &Browser,
    fault: Fault,
) {
    turn_on(gateway, stripe, browser, ["5000", "20", "20"], Some(fault)).await;
    for minutes in [0, 4] {
        look(gateway, minutes).await;
    }
    let sent = stripe.requests();
    assert!(
        sent.iter()
            .any(|sent| sent.fields.contains_key("metadata[top_up]"))
    );
    stripe.break_with(None);
}

/// Two people leave for the provider's page, and the first one pays: the card is not charged by what the second agreed to.
#[tokio::test]
async fn a_card_is_saved_only_for_the_settings_that_it_paid_for() {
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let browser = Browser::signed_in(&gateway).await;
    let mut left = Vec::new();
    for settings in [["5", "20", "50"], ["5000", "500", "1000"]] {
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
