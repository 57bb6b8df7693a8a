//! The kinds of alerts: each opens once and closes by itself.

use reqwest::Method;
use serde_json::{Value, json};
use tollgate::base::timestamp;

use crate::support::{
    Step,
    alerts::Watched,
    bodies::{hello_with, long},
    gateway::hello,
    stores,
    upstream::{chunk, events},
};

const MODEL: &str = "svc-standard";
/// A million tokens cost two dollars.
const MILLION: u32 = 1_000_000;

/// A request in which a provider can count as many tokens as the model's context holds.
fn full_context() -> Value {
    long(MODEL, 1_050_000)
}

fn message(what: &str, kind: &str, subject: &str) -> (String, String, String) {
    (format!("alert.{what}"), kind.into(), subject.into())
}

#[tokio::test]
async fn a_balance_crossing_the_threshold_repeatedly_is_reported_once_an_hour() {
    let watched = Watched::start().await;
    let (id, key) = watched.account_with("6").await;
    let upstream = &watched.gateway.upstream;
    upstream.answer_using(MILLION, 0, 0, 0);
    let spend = async || {
        let answer = watched.gateway.chat_as(&key, &full_context()).await;
        answer.assert_ok();
        watched.gateway.idle().await;
    };
    let opened = || message("opened", "balance.low", &id);
    let closed = || message("closed", "balance.low", &id);
    // An unused account raises no alert, however low its balance.
    watched.account_with("1").await;
    watched.check(0).await;
    assert_eq!(watched.notifications(), []);
    spend().await;
    watched.check(0).await;
    assert_eq!(watched.notifications(), [opened()]);
    let data = &watched.hook.received()[0].body["data"];
    assert_eq!(
        data["detail"],
        json!({ "account": id, "available": "4.000000", "threshold": "5.000000" })
    );
    spend().await;
    watched.check(30).await;
    watched.check(60).await;
    assert_eq!(watched.notifications().len(), 1, "one notification");

    for dance in 1..=3 {
        watched.give(&id, json!({ "amount": "4" })).await;
        watched.check(100 * dance).await;
        spend().await;
        spend().await;
        watched.check(100 * dance + 30).await;
    }
    assert_eq!(
        watched.notifications(),
        [opened(), closed()],
        "{:?}",
        watched.alerts().await
    );
    let (open, past) = watched.alerts().await;
    assert_eq!((open.len(), past.len()), (1, 3), "all of it is on the page");
    watched.give(&id, json!({ "amount": "4" })).await;
    watched.check(3_700).await;
    spend().await;
    spend().await;
    watched.check(3_730).await;
    assert_eq!(watched.notifications(), [opened(), closed(), opened()]);
    let account = format!("/operator/accounts/{id}");
    let close = watched
        .gateway
        .operate(Method::PATCH, &account, Some(json!({ "closed": true })));
    close.await.assert_ok();
    watched.check(3_760).await;
    assert_eq!(
        watched.notifications()[3..],
        [closed()],
        "no further notification"
    );
    let reopen = json!({ "closed": false });
    let reopen = watched
        .gateway
        .operate(Method::PATCH, &account, Some(reopen));
    reopen.await.assert_ok();
    spend().await;
    watched.check(9_000).await;
    watched.check(9_000 + 29 * 86_400).await;
    assert_eq!(watched.notifications()[4..], [opened()]);
    watched.check(9_000 + 31 * 86_400).await;
    assert_eq!(
        watched.notifications()[5..],
        [closed()],
        "it is not in use any more"
    );
    watched.gateway.stop().await;
}

#[tokio::test]
async fn a_reopened_alert_that_stays_is_reported_after_the_hour() {
    let watched = Watched::start().await;
    let (id, key) = watched.account_with("6").await;
    watched.gateway.upstream.answer_using(MILLION, 0, 0, 0);
    let spend = async || {
        let answer = watched.gateway.chat_as(&key, &full_context()).await;
        answer.assert_ok();
        watched.gateway.idle().await;
    };
    spend().await;
    watched.check(0).await;
    watched.give(&id, json!({ "amount": "2" })).await;
    watched.check(30).await;
    spend().await;
    watched.check(60).await;
    watched.check(3_590).await;
    let notification = |what| message(what, "balance.low", &id);
    assert_eq!(
        watched.notifications(),
        [notification("opened"), notification("closed")]
    );
    watched.check(3_600).await;
    watched.check(3_630).await;
    assert_eq!(watched.notifications()[2..], [notification("opened")]);
    watched.gateway.stop().await;
}

#[tokio::test]
async fn expiring_credit_is_reported_until_it_is_gone() {
    let watched = Watched::start().await;
    let (id, key) = watched.account_with("100").await;
    let in_days = |days: i64| timestamp::shown(watched.now + days * 86_400);
    let soon = watched.give(&id, json!({ "amount": "1", "expires_at": in_days(3) }));
    let soon = format!("{id}/{}", soon.await);
    let later = watched.give(&id, json!({ "amount": "1", "expires_at": in_days(9) }));
    let later = format!("{id}/{}", later.await);
    let crumbs = json!({ "amount": "0.009", "expires_at": in_days(3) });
    watched.give(&id, crumbs).await;
    watched.check(0).await;
    watched.check(700).await;
    let opened = |subject: &str| message("opened", "credit.expiring", subject);
    let closed = |subject: &str| message("closed", "credit.expiring", subject);
    assert_eq!(watched.notifications(), [opened(&soon)]);
    let detail = &watched.hook.received()[0].body["data"]["detail"];
    assert_eq!(detail["left"], "1.000000");
    assert_eq!(detail["expires_at"], in_days(3));
    watched.check(3 * 86_400).await;
    // One alert has closed, the other has opened.
    let mut notifications = watched.notifications().split_off(1);
    notifications.sort_unstable();
    let mut expected = [opened(&later), closed(&soon)];
    expected.sort_unstable();
    assert_eq!(notifications, expected);
    // Credit that is used up does not expire.
    watched
        .gateway
        .upstream
        .answer_using(MILLION + MILLION / 100, 0, 0, 0);
    watched
        .gateway
        .chat_as(&key, &full_context())
        .await
        .assert_ok();
    watched.gateway.idle().await;
    watched.check(3 * 86_400 + 30).await;
    assert_eq!(watched.notifications()[3..], [closed(&later)]);
    watched.gateway.stop().await;
}

/// The charge stops at the request's bound; the rest is the operator's loss.
#[tokio::test]
async fn usage_beyond_the_bound_is_reported() {
    let watched = Watched::start().await;
    watched.gateway.upstream.answer_using(5, 0, 100, 0);
    let body = hello_with(MODEL, json!({ "max_tokens": 128 }));
    watched.gateway.chat(&body).await.assert_ok();
    watched.check(0).await;
    assert_eq!(
        watched.notifications(),
        [],
        "usage within the bound raises no alert"
    );
    watched.gateway.upstream.answer_using(5, 0, 228, 0);
    watched.gateway.chat(&body).await.assert_ok();
    watched.check(30).await;
    assert_eq!(
        watched.notifications(),
        [message("opened", "usage.over_bound", "fake")]
    );
    let detail = &watched.hook.received()[0].body["data"]["detail"];
    let expected = json!({ "provider": "fake", "calls": 1, "not_charged": "0.000900" });
    assert_eq!(*detail, expected, "100 tokens at 9.00 a million");
    watched.gateway.stop().await;
}

#[tokio::test]
async fn a_failing_upstream_is_reported_without_its_error_text() {
    let watched = Watched::start().await;
    let upstream = &watched.gateway.upstream;
    let busy = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 30\r\ncontent-length: 2\r\n\r\n{}";
    upstream.play(vec![Step::Send(busy.into())]);
    watched.gateway.chat(&hello(MODEL)).await;
    watched.check(0).await;
    assert_eq!(
        watched.notifications(),
        [],
        "a Retry-After alone raises no alert"
    );
    upstream.answer_using(1, 0, 1, 0);
    watched.gateway.chat(&hello(MODEL)).await.assert_ok();
    let words = json!({ "error": { "message": "you said heliotrope" } });
    upstream.answer_json(500, &words);
    for _ in 0..4 {
        assert_eq!(watched.gateway.chat(&hello(MODEL)).await.status, 502);
    }
    watched.check(0).await;
    assert_eq!(watched.notifications(), []);
    assert_eq!(watched.gateway.chat(&hello(MODEL)).await.status, 502);
    watched.check(0).await;
    let subject = "fake/*/vendor-model-9";
    assert_eq!(
        watched.notifications(),
        [message("opened", "upstream.failing", subject)]
    );
    let notification = &watched.hook.received()[0];
    assert_eq!(notification.body["data"]["detail"]["failures_in_a_row"], 5);
    assert!(
        !notification.text.contains("heliotrope"),
        "{}",
        notification.text
    );
    upstream.answer_using(1, 0, 1, 0);
    watched.gateway.chat(&hello(MODEL)).await.assert_ok();
    // Late enough for other gateways to have checked too.
    watched.check(100).await;
    assert_eq!(
        watched.notifications()[1..],
        [message("closed", "upstream.failing", subject)]
    );
    watched.gateway.stop().await;
}

#[tokio::test]
async fn streams_without_usage_are_reported_for_an_hour() {
    let watched = Watched::start().await;
    let without = events(&[chunk(json!({ "content": "Hi" }), Some("stop"))]);
    watched.gateway.upstream.answer_stream(&without);
    for _ in 0..3 {
        watched.gateway.stream(&hello(MODEL)).await;
    }
    watched.gateway.idle().await;
    watched.check(0).await;
    watched.check(3_000).await;
    assert_eq!(
        watched.notifications(),
        [message("opened", "stream.unbilled", "fake")]
    );
    let data = &watched.hook.received()[0].body["data"];
    assert_eq!(data["detail"]["calls_in_an_hour"], 3);
    assert_eq!(
        data["summary"],
        "3 calls of fake could not be charged within an hour"
    );
    watched.check(3_700).await;
    assert_eq!(
        watched.notifications()[1..],
        [message("closed", "stream.unbilled", "fake")]
    );
    watched.gateway.stop().await;
}

#[tokio::test]
async fn a_ledger_that_does_not_add_up_is_reported_until_an_audit_is_clean() {
    let watched = Watched::start().await;
    let audit = async || {
        let audit = watched
            .gateway
            .operate(Method::POST, "/operator/audit", None);
        audit.await.assert_ok()["ok"].as_bool().unwrap()
    };
    let folder = watched.gateway.data.path();
    assert!(audit().await);
    watched.check(0).await;
    assert_eq!(watched.notifications(), []);
    stores::execute(
        folder,
        "UPDATE ledger_entries SET delta_nano_usd = delta_nano_usd - 1",
    )
    .await;
    assert!(!audit().await);
    watched.check(30).await;
    watched.check(60).await;
    assert_eq!(
        watched.notifications(),
        [message("opened", "audit.mismatch", "ledger")]
    );
    let detail = &watched.hook.received()[0].body["data"]["detail"];
    assert_eq!(
        *detail,
        json!({ "accounts": 1, "some": [watched.gateway.account_id] })
    );
    stores::execute(
        folder,
        "UPDATE ledger_entries SET delta_nano_usd = delta_nano_usd + 1",
    )
    .await;
    assert!(audit().await);
    watched.check(90).await;
    assert_eq!(
        watched.notifications()[1..],
        [message("closed", "audit.mismatch", "ledger")]
    );
    watched.gateway.stop().await;
}

/// If a provider refuses the key, the account or the model name, the operator must correct the configuration.
#[tokio::test]
async fn a_provider_that_refuses_the_operators_credentials_is_reported() {
    let watched = Watched::start().await;
    let upstream = &watched.gateway.upstream;
    upstream.answer_json(401, &json!({ "error": { "message": "bad key" } }));
    assert_eq!(watched.gateway.chat(&hello(MODEL)).await.status, 502);
    upstream.answer_json(404, &json!({ "error": { "message": "no such model" } }));
    assert_eq!(watched.gateway.chat(&hello(MODEL)).await.status, 502);
    watched.check(0).await;
    let opened: Vec<_> = watched.notifications();
    assert_eq!(opened, [message("opened", "upstream.refuses", "fake")]);
    let data = &watched.hook.received()[0].body["data"];
    assert_eq!(data["summary"], "fake refused 2 requests with status 404");
    // A provider's complaint about a request is not the operator's fault.
    upstream.answer_json(400, &json!({ "error": { "message": "no" } }));
    assert_eq!(watched.gateway.chat(&hello(MODEL)).await.status, 502);
    watched.check(10).await;
    assert_eq!(watched.notifications().len(), 1);
    watched.gateway.stop().await;
}
