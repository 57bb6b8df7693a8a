//! Payments with invalid events, a failing provider and failing stores.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::base::timestamp::now;

use crate::support::{
    Process, TestGateway,
    admin::rows,
    portal::Browser,
    stores::{self, files_only},
    stripe::{
        FakeStripe, Fault, SECRET_KEY, WEBHOOK_SECRET, deliver, deliver_as, order, paid, signature,
    },
};

async fn balance(gateway: &TestGateway, browser: &Browser) -> Value {
    let path = format!("/operator/accounts/{}", browser.account_id);
    let answer = gateway.operate(Method::GET, &path, None).await;
    answer.assert_ok()["balance"].clone()
}

#[tokio::test]
async fn unsigned_events_and_other_event_types_are_ignored() {
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let browser = Browser::signed_in(&gateway).await;
    let (checkout, session) = stripe.order(&browser, "10").await;
    let event = paid(&checkout, &session, 1_000);
    let body = event.to_string();
    let right = signature(WEBHOOK_SECRET, now(), &body);
    let (_, digest) = right.split_once("v1=").unwrap();
    for wrong in [
        None,
        Some(String::new()),
        Some(signature("whsec_another", now(), &body)),
        Some(signature(WEBHOOK_SECRET, now(), "{}")),
        Some(signature(WEBHOOK_SECRET, now() - 400, &body)),
        Some(signature(WEBHOOK_SECRET, now() + 400, &body)),
        Some(right.replace("v1=", "v0=")),
        Some(format!("v1={digest}")),
        Some(format!("t={},v1={digest}", now() - 10)),
    ] {
        let refused = deliver_as(gateway.public, wrong.as_deref(), body.clone()).await;
        refused.assert_error(400, "invalid_request_error", None, None);
    }
    for unreadable in ["", "{", "[]", "\"paid\"", &body[1..]] {
        let signed = signature(WEBHOOK_SECRET, now(), unreadable);
        let refused = deliver_as(gateway.public, Some(&signed), unreadable.to_owned()).await;
        refused.assert_error(400, "invalid_request_error", None, None);
    }
    let too_large = "x".repeat((64 << 10) + 1);
    let refused = deliver_as(gateway.public, Some(&right), too_large).await;
    assert_eq!(refused.status, 413);
    let other = |change: fn(&mut Value)| {
        let mut event = event.clone();
        change(&mut event);
        event
    };
    for nothing in [
        other(|event| event["type"] = "checkout.session.expired".into()),
        other(|event| event["type"] = "payment_intent.succeeded".into()),
        other(|event| event["data"]["object"]["payment_status"] = "unpaid".into()),
        other(|event| event["data"]["object"]["amount_total"] = 0.into()),
        json!({ "type": "customer.created", "data": [] }),
    ] {
        deliver(gateway.public, &nothing).await.assert_ok();
    }
    let response = gateway.get("/payments/stripe").await;
    response.assert_error(404, "not_found", Some("route_not_found"), None);
    assert_eq!(balance(&gateway, &browser).await, "1000.000000");
    // An event with two signatures, as sent while the secret is rotated. One of them is valid.
    let rotated = format!("{},v1={digest}", signature("whsec_another", now(), &body));
    let rotated = rotated.replacen(
        rotated.split(',').next().unwrap(),
        right.split(',').next().unwrap(),
        1,
    );
    let taken = deliver_as(gateway.public, Some(&rotated), body).await;
    taken.assert_ok();
    assert_eq!(balance(&gateway, &browser).await, "1010.000000");
    gateway.stop().await;
}

#[tokio::test]
async fn a_failing_provider_is_reported_and_nothing_is_lost() {
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let browser = Browser::signed_in(&gateway).await;
    for fault in [
        Fault::Answer(500, "<html>"),
        Fault::Answer(401, r#"{"error":{"type":"invalid_request_error"}}"#),
        Fault::Redirect,
        Fault::Answer(200, "{}"),
        Fault::Answer(200, r#"{"id":"cs_1","url":"javascript:alert(1)"}"#),
        Fault::Answer(200, r#"{"id":"cs 1","url":"https://pay.example"}"#),
        Fault::Hang,
    ] {
        stripe.break_with(fault);
        let failed = order(&browser, "10").await;
        assert_eq!(failed.status, 503, "{fault:?}");
        let told = "We cannot reach the payment page right now. You were not charged";
        assert!(failed.text.contains(told), "{fault:?}: {}", failed.text);
        assert!(!failed.text.contains("javascript:"), "{}", failed.text);
        assert_eq!(stripe.requests().len(), 1, "{fault:?}");
    }
    stripe.break_with(None);
    let (checkout, session) = stripe.order(&browser, "10").await;
    deliver(gateway.public, &paid(&checkout, &session, 1_000))
        .await
        .assert_ok();
    assert_eq!(balance(&gateway, &browser).await, "1010.000000");
    gateway.stop().await;
}

/// If either store refuses a write, the payment is credited once both accept writes again.
#[tokio::test]
async fn a_payment_outlives_stores_that_fail() {
    if files_only("it locks the database's file") {
        return;
    }
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let browser = Browser::signed_in(&gateway).await;
    let (checkout, session) = stripe.order(&browser, "10").await;
    let event = paid(&checkout, &session, 1_000);
    let stranger = rusqlite::Connection::open(gateway.data.path().join("tollgate.db")).unwrap();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = deliver(gateway.public, &event).await;
    let code = Some("credit_reservation_unavailable");
    refused.assert_error(503, "server_error", code, None);
    // The checkout is stored as paid, so no page says that nothing was charged.
    for how in ["paid", "cancelled"] {
        let page = browser
            .get(&format!("/portal/billing?{how}={checkout}"))
            .await;
        assert!(page.assert_page().contains("is being confirmed"), "{how}");
    }
    drop(stranger);
    let mut status = 503;
    for _ in 0..500 {
        status = deliver(gateway.public, &event).await.status;
        if status == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(status, 200);
    deliver(gateway.public, &event).await.assert_ok();
    assert_eq!(balance(&gateway, &browser).await, "1010.000000");
    let billing = browser.get("/portal/billing").await;
    let payments = rows(&billing.text, "Latest payments, newest first");
    assert_eq!(payments[1][2..4], ["$10.00", "Paid"]);
    gateway.stop().await;
}

#[tokio::test]
async fn secrets_of_payments_are_in_no_log() {
    let (stripe, folder) = (FakeStripe::start().await, TempDir::new().unwrap());
    let text = format!(
        "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n\
         portal.sign_up = \"open\"\nlog.level = \"debug\"\n{}\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n\
         [providers.play]\nkind = \"simulator\"\n{}",
        stores::lines(folder.path()),
        stripe.section(),
    );
    let config = folder.path().join("tollgate.toml");
    std::fs::write(&config, text).unwrap();
    let token = [(
        "TOLLGATE_OPERATOR_TOKEN",
        "7c1f9a04e6b25d83d0487ae1936bf25c",
    )];
    let (process, public, _) = Process::serve(&config, &token).await;
    let browser = Browser::at(public);
    browser
        .sign_up("new@example.com")
        .await
        .assert_sent_to("/portal");
    let words = r#"{"error":{"type":"invalid_request_error","code":"api_key_expired",
        "message":"the key sk_test_canary_0123456789 has expired"}}"#;
    stripe.break_with(Fault::Answer(401, words));
    assert_eq!(order(&browser, "10").await.status, 503);
    stripe.break_with(None);
    stripe.requests();
    let (checkout, session) = stripe.order(&browser, "10").await;
    let event = paid(&checkout, &session, 900);
    let forged = signature("whsec_another", now(), &event.to_string());
    let refused = deliver_as(public, Some(&forged), event.to_string()).await;
    assert_eq!(refused.status, 400);
    deliver(public, &event).await.assert_ok();
    let billing = browser.get("/portal/billing").await;
    assert!(billing.assert_page().contains("$9.00"));
    let log = process.terminated().await.stderr;
    for told in [
        "status 401, invalid_request_error, api_key_expired",
        "the amount paid differs",
    ] {
        assert!(log.contains(told), "{told}: {log}");
    }
    for secret in [SECRET_KEY, WEBHOOK_SECRET, "v1=", &browser.token()] {
        let found = log.lines().find(|line| line.contains(secret));
        assert_eq!(found, None, "{secret} is not for the log");
    }
}
