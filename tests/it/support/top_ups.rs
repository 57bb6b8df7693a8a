//! Auto top-up in the portal: agreeing to settings, and the gateway's looks at the accounts.

use reqwest::Method;
use tollgate::{base::timestamp::now, gateway::top_ups};

use super::{
    TestGateway,
    admin::not_at_midnight,
    portal::{Browser, Seen},
    stripe::{FakeStripe, Fault, deliver, paid_and_saved},
};

pub async fn balance(gateway: &TestGateway, account_id: &str) -> String {
    let path = format!("/operator/accounts/{account_id}");
    let answer = gateway.operate(Method::GET, &path, None).await;
    answer.assert_ok()["balance"].as_str().unwrap().to_owned()
}

/// Agrees to settings in these dollars.
pub async fn set(browser: &Browser, [threshold, amount, monthly_max]: [&str; 3]) -> Seen {
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
pub async fn turn_on(
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
pub async fn look(gateway: &TestGateway, minutes: i64) {
    let clock = || now() + 60 * minutes;
    top_ups::round(gateway.inside(), clock).await.unwrap();
}

/// Turns it on with a fault at the provider, looks until an attempt is open, and mends the provider.
pub async fn begin_and_lose(
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
