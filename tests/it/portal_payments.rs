//! Buying credit: from choosing an amount to the entry in the ledger.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Process, TestGateway,
    admin::{Admin, rows},
    console::{actions, give_token, with_token},
    portal::{Browser, PASSWORD},
    stripe::{FakeStripe, SECRET_KEY, deliver, order, paid},
};

const PAYMENTS: &str = "Latest payments, newest first";
const HISTORY: &str = "Everything that changed the balance, newest first; days in UTC";
const TEST_MODE: &str = "<strong>Test mode:</strong> no card is charged";

async fn balance(gateway: &TestGateway, browser: &Browser) -> Value {
    let path = format!("/operator/accounts/{}", browser.account_id);
    let answer = gateway.operate(Method::GET, &path, None).await;
    answer.assert_ok()["balance"].clone()
}

async fn bought(browser: &Browser) -> Vec<Vec<String>> {
    let page = browser.get("/portal/billing").await;
    let mut rows = rows(page.assert_page(), PAYMENTS).split_off(1);
    for row in &mut rows {
        row.remove(0);
        row.truncate(3);
    }
    rows
}

#[tokio::test]
async fn a_payment_is_credited_once_however_often_it_is_delivered() {
    let stripe = FakeStripe::start().await;
    let section = format!("{}credit_days = 30\n", stripe.section());
    let gateway = TestGateway::start_with(&section).await;
    let browser = Browser::signed_in(&gateway).await;
    let billing = browser.get("/portal/billing").await;
    for told in [">Add </span>$10.00<", "Other amount", "after 30 days"] {
        assert!(billing.assert_page().contains(told), "{told}");
    }

    let leaving = order(&browser, "25.000000").await;
    let request = stripe.requests().pop().unwrap();
    let field = |name: &str| request.fields[name].as_str();
    let checkout = field("client_reference_id");
    let session = format!("cs_test_{}", &checkout["checkout_".len()..]);
    let page = format!("http://{}/pay/{session}", stripe.address);
    assert_eq!(
        leaving.between("http-equiv=\"refresh\" content=\"0; url=", "\""),
        page
    );
    assert!(leaving.assert_page().contains(&format!("href=\"{page}\"")));
    let back = |how: &str| format!("{}/portal/billing?{how}={checkout}", browser.origin());
    for (name, value) in [
        ("mode", "payment"),
        ("customer_email", &browser.email),
        ("success_url", &back("paid")),
        ("cancel_url", &back("cancelled")),
        ("line_items[0][quantity]", "1"),
        ("line_items[0][price_data][currency]", "usd"),
        ("line_items[0][price_data][unit_amount]", "2500"),
        ("payment_intent_data[metadata][checkout]", checkout),
    ] {
        assert_eq!(field(name), value, "{name}");
    }
    let header = |name: &str| request.headers[name].to_str().unwrap();
    assert_eq!(header("authorization"), format!("Bearer {SECRET_KEY}"));
    assert_eq!(header("idempotency-key"), checkout);

    // Returning from the provider does not prove a payment.
    let (paid_page, cancelled_page) = (
        format!("/portal/billing?paid={checkout}"),
        format!("/portal/billing?cancelled={checkout}"),
    );
    let waiting = browser.get(&paid_page).await;
    assert!(waiting.assert_page().contains("is being confirmed"));
    assert!(
        waiting
            .text
            .contains("http-equiv=\"refresh\" content=\"3\"")
    );
    let cancelled = browser.get(&cancelled_page).await;
    assert!(cancelled.assert_page().contains("You were not charged"));
    assert!(!cancelled.text.contains("http-equiv"));
    assert_eq!(
        bought(&browser).await,
        [[&browser.email, "$25.00", "Not paid"]]
    );
    assert_eq!(balance(&gateway, &browser).await, "1000.000000");

    let event = paid(checkout, &session, 2_500);
    let crowd = (0..20).map(|_| deliver(gateway.public, &event));
    for answer in join_all(crowd).await {
        // If the store is busy, the response is 503 and the provider delivers the event again.
        assert!([200, 503].contains(&answer.status), "{answer:?}");
    }
    deliver(gateway.public, &event).await.assert_ok();
    let mut again = event.clone();
    again["type"] = "checkout.session.async_payment_succeeded".into();
    deliver(gateway.public, &again).await.assert_ok();

    for page in [&paid_page, &cancelled_page] {
        let thanks = browser.get(page).await;
        assert!(thanks.assert_page().contains("the credit was added"));
        assert!(!thanks.text.contains("http-equiv"), "{}", thanks.text);
    }
    assert_eq!(balance(&gateway, &browser).await, "1025.000000");
    assert_eq!(bought(&browser).await, [[&browser.email, "$25.00", "Paid"]]);
    let billing = browser.get("/portal/billing").await;
    let history = rows(&billing.text, HISTORY);
    assert_eq!(history[1][1..3], ["Credit added: Paid by card", "+$25.00"]);
    let ledger = &gateway.inside().ledger;
    let grants = ledger.grants(&browser.account_id).await.unwrap();
    let [_, grant] = grants.as_slice() else {
        panic!("a gift and a purchase: {grants:?}")
    };
    assert_eq!(grant.reference, Some(format!("stripe:{session}")));
    let lasts = grant.expires_at.unwrap() - grant.created_at;
    assert!((lasts - 30 * 86_400).abs() < 300, "{lasts}");
    let account = format!("/portal/console/accounts/{}", browser.account_id);
    let account = with_token(&gateway).await.get(&account).await;
    let listed = rows(account.assert_page(), PAYMENTS);
    assert_eq!(listed[1][1..4], [&browser.email, "$25.00", "Paid"]);
    let done = actions(&gateway, Some(&browser.account_id)).await;
    let by_stripe: Vec<_> = done.iter().filter(|act| act.actor == "Stripe").collect();
    let [act] = by_stripe.as_slice() else {
        panic!("one act: {done:?}")
    };
    assert_eq!(act.what, "account.grant");
    assert_eq!(act.before.as_deref(), Some(r#"{"balance":"1000.000000"}"#));
    gateway.stop().await;
}

#[tokio::test]
async fn the_paid_amount_is_credited_to_the_account_of_the_checkout() {
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let (ada, eve) = (
        Browser::signed_in(&gateway).await,
        Browser::signed_in(&gateway).await,
    );
    let (of_ada, session_of_ada) = stripe.order(&ada, "10").await;
    let (of_eve, session_of_eve) = stripe.order(&eve, "100").await;
    // Another account's checkout gives 404.
    for how in ["paid", "cancelled"] {
        let page = format!("/portal/billing?{how}={of_ada}");
        assert_eq!(eve.get(&page).await.status, 404);
        ada.get(&page).await.assert_page();
    }
    for nothing in ["checkout_", "x", "checkout_000000000000000000000000"] {
        let page = format!("/portal/billing?paid={nothing}");
        assert_eq!(ada.get(&page).await.status, 404, "{nothing}");
    }

    // An event whose session belongs to another checkout is ambiguous and credits nothing.
    let crossed = paid(&of_eve, &session_of_ada, 1_000);
    deliver(gateway.public, &crossed).await.assert_ok();
    let unpaid = ["Not paid"];
    assert_eq!(bought(&eve).await[0][2..], unpaid);
    assert_eq!(bought(&ada).await[0][2..], unpaid);
    // The account comes from the checkout and the amount from the payment; other fields of the event are
    // ignored.
    let mut event = paid(&of_ada, &session_of_ada, 750);
    event["data"]["object"]["customer_email"] = json!(eve.email);
    event["data"]["object"]["metadata"] = json!({ "account": eve.account_id, "checkout": of_eve });
    deliver(gateway.public, &event).await.assert_ok();
    // Once a checkout is paid, an event with another amount is ignored.
    let more = paid(&of_ada, &session_of_ada, 99_900);
    deliver(gateway.public, &more).await.assert_ok();
    assert_eq!(balance(&gateway, &ada).await, "1007.500000");
    assert_eq!(balance(&gateway, &eve).await, "1000.000000");
    assert_eq!(bought(&ada).await, [[&ada.email, "$7.50", "Paid"]]);
    assert_eq!(bought(&eve).await, [[&eve.email, "$100.00", "Not paid"]]);

    let mut euros = paid(&of_eve, &session_of_eve, 10_000);
    euros["data"]["object"]["currency"] = "eur".into();
    deliver(gateway.public, &euros).await.assert_ok();
    assert_eq!(balance(&gateway, &eve).await, "1000.000000");
    // Events of other applications at the same provider, and of a checkout that is not stored.
    for other in [json!(null), json!("order_7"), json!("checkout_7")] {
        let mut event = paid("", "cs_other", 500);
        event["data"]["object"]["client_reference_id"] = other;
        deliver(gateway.public, &event).await.assert_ok();
    }
    let lost = paid("checkout_000000000000000000000000", "cs_lost", 500);
    let lost = deliver(gateway.public, &lost).await;
    let code = Some("credit_reservation_unavailable");
    lost.assert_error(503, "server_error", code, None);

    // A payment is credited even if the account was closed meanwhile.
    let account = format!("/operator/accounts/{}", eve.account_id);
    let closed = Some(json!({ "closed": true }));
    gateway
        .operate(Method::PATCH, &account, closed)
        .await
        .assert_ok();
    let late = paid(&of_eve, &session_of_eve, 10_000);
    deliver(gateway.public, &late).await.assert_ok();
    assert_eq!(balance(&gateway, &eve).await, "1100.000000");
    assert_eq!(order(&eve, "10").await.status, 400);
    gateway.stop().await;
}

#[tokio::test]
async fn amounts_are_checked_and_open_checkouts_limited() {
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let browser = Browser::signed_in(&gateway).await;
    for wrong in ["", "4.99", "1000.01", "10.001", "-10", "1e2", "a lot", "0"] {
        let refused = order(&browser, wrong).await;
        assert_eq!(refused.status, 400, "{wrong}");
        let told = "Enter $5.00 to $1,000.00, in whole cents.";
        assert!(refused.text.contains(told), "{wrong}: {}", refused.text);
    }
    assert_eq!(stripe.requests().len(), 0);
    let (first, session) = stripe.order(&browser, " $5.01 ").await;
    for _ in 1..10 {
        order(&browser, "1000").await.assert_page();
    }
    assert_eq!(order(&browser, "10").await.status, 429);
    assert_eq!(stripe.requests().len(), 9);
    deliver(gateway.public, &paid(&first, &session, 501))
        .await
        .assert_ok();
    order(&browser, "10").await.assert_page();
    Browser::signed_in(&gateway)
        .await
        .get("/portal/billing")
        .await
        .assert_page();
    gateway.stop().await;
}

#[tokio::test]
async fn without_a_provider_there_is_nothing_to_pay_with() {
    let admin = Admin::open().await;
    let page = admin.page("/portal/billing").await;
    assert!(page.contains("Ask your provider for more credit."));
    assert!(!page.contains(PAYMENTS) && !page.contains("/portal/billing/checkout"));
    let begun = admin
        .browser
        .post("/portal/billing/checkout", &[("amount", "10")]);
    assert_eq!(begun.await.status, 404);
    let delivered = deliver(admin.gateway.public, &paid("checkout_1", "cs_1", 100)).await;
    delivered.assert_error(404, "not_found", Some("route_not_found"), None);

    // With a real provider there is no test payment page.
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let browser = Browser::signed_in(&gateway).await;
    let (checkout, _) = stripe.order(&browser, "10").await;
    let pretending = format!("/portal/billing/test-payment/{checkout}");
    assert_eq!(browser.get(&pretending).await.status, 404);
    assert_eq!(browser.post(&pretending, &[]).await.status, 404);

    // Without a session, the return from the provider leads to the sign-in page and then back.
    let nobody = Browser::new(&gateway);
    let seen = nobody
        .get(&format!("/portal/billing?paid={checkout}"))
        .await;
    let to = format!("/portal/billing?paid={checkout}");
    let encoded = to.replace('/', "%2F").replace('?', "%3F");
    let encoded = encoded.replace('=', "%3D").replace('_', "%5F");
    seen.assert_sent_to(&format!("/portal/sign-in?to={encoded}"));
    nobody.get(seen.header("location")).await.assert_page();
    let fields = [
        ("email", browser.email.as_str()),
        ("password", PASSWORD),
        ("to", &to),
    ];
    nobody
        .post("/portal/sign-in", &fields)
        .await
        .assert_sent_to(&to);
    nobody.get(&to).await.assert_page();
    gateway.stop().await;
}

#[tokio::test]
async fn dev_has_test_payments() {
    let data = TempDir::new().unwrap();
    let (_process, environment) = Process::dev(data.path()).await;
    let url = environment["TOLLGATE_PORTAL_URL"]
        .strip_prefix("http://")
        .unwrap();
    let public = url.strip_suffix("/portal").unwrap().parse().unwrap();
    let browser = Browser::at(public);
    for path in ["/portal/sign-in", "/portal/sign-up", "/portal/nowhere"] {
        assert!(browser.get(path).await.text.contains(TEST_MODE), "{path}");
    }
    let operator = Browser::at(public);
    let token = &environment["TOLLGATE_OPERATOR_TOKEN"];
    let signed_in = give_token(&operator, token).await;
    signed_in.assert_sent_to("/portal/console");
    let console = operator.get("/portal/console/accounts").await;
    assert!(console.assert_page().contains(TEST_MODE));
    browser
        .sign_up("new@example.com")
        .await
        .assert_sent_to("/portal");
    let leaving = order(&browser, "25").await;
    let payment = leaving
        .between("href=\"/portal/billing/test-payment/", "\"")
        .to_owned();
    let page = format!("/portal/billing/test-payment/{payment}");
    let asking = browser.get(&page).await;
    assert!(asking.assert_page().contains("$25.00"));
    let cancelled = format!("/portal/billing?cancelled={payment}");
    assert!(asking.text.contains(&format!("href=\"{cancelled}\"")));
    let cancelled = browser.get(&cancelled).await;
    assert!(cancelled.assert_page().contains("You were not charged"));
    let other = Browser::at(public);
    other
        .sign_up("other@example.com")
        .await
        .assert_sent_to("/portal");
    other.get("/portal/billing").await.assert_page();
    assert_eq!(other.post(&page, &[]).await.status, 404, "it is not theirs");
    for _ in 0..2 {
        let done = format!("/portal/billing?paid={payment}");
        browser.post(&page, &[]).await.assert_sent_to(&done);
        let thanks = browser.get(&done).await;
        assert!(thanks.assert_page().contains("the credit was added"));
        assert_eq!(thanks.between("<p class=\"figure\">", "<"), "$25.00");
        let history = rows(&thanks.text, HISTORY);
        let reason = "Credit added: Test payment (no card charged)";
        assert_eq!(history[1][1], reason, "{history:?}");
        let number = thanks.between("/portal/billing/receipts/", "\"");
        let receipt = format!("/portal/billing/receipts/{number}");
        let receipt = browser.get(&receipt).await;
        let statements = browser.get("/portal/billing/statements").await;
        let month = statements.between("/portal/billing/statements/", "\"");
        let statement = format!("/portal/billing/statements/{month}");
        let statement = browser.get(&statement).await;
        for page in [thanks, receipt, statements, statement] {
            assert_eq!(page.assert_page().matches(TEST_MODE).count(), 1);
        }
    }
    assert_eq!(
        deliver(public, &paid(&payment, "cs_1", 100)).await.status,
        404
    );
}
