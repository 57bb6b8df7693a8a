//! §4.9, §7: failures that depend on the account, the window and the stores, in the envelope of the Messages API.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, Plan, Step, TestGateway,
    gateway::answer,
    messages::{COUNT, PATH, writing},
    stores::files_only,
    upstream::completion,
};

async fn message_as(gateway: &TestGateway, key: &str, body: &Value) -> Answer {
    let request = gateway.client.post(gateway.url(PATH));
    answer(request.header("x-api-key", key).json(body)).await
}

#[track_caller]
fn assert_no_ratelimit_headers(answer: &Answer) {
    for name in answer.headers.keys() {
        assert!(!name.as_str().contains("ratelimit"), "{name}");
    }
}

#[tokio::test]
async fn expired_credit_is_told_apart_from_spent_credit() {
    let gateway = TestGateway::start().await;
    let account = json!({ "email": "a@example.com", "track": "business", "tier": "flex" });
    let made = gateway.operate(Method::POST, "/operator/accounts", Some(account));
    let id = made.await.assert_ok()["id"].as_str().unwrap().to_owned();
    let grants = format!("/operator/accounts/{id}/grants");
    let lapsed = json!({ "amount": "5", "expires_at": "2026-01-01T00:00:00Z" });
    let given = gateway.operate(Method::POST, &grants, Some(lapsed)).await;
    given.assert_ok();
    let (_, key) = gateway.new_key(&id).await;
    let refused = message_as(&gateway, &key, &writing(json!({}))).await;
    refused.assert_message_error(402, "billing_error", Some("credits_expired"), None);
    assert_eq!(refused.headers["x-should-retry"], "false");
    let error = refused.message_error();
    let details = &error["details"];
    assert_eq!(details["expired_at"], "2026-01-01T00:00:00Z");
    assert!(details["balance"].is_string(), "{details}");
    let url = details["billing_url"].as_str().unwrap();
    assert!(error["message"].as_str().unwrap().contains(url), "{error}");
}

#[tokio::test]
async fn a_closed_account_names_the_billing_page() {
    let gateway = TestGateway::start().await;
    let (id, key) = gateway.account(Plan::MAX).await;
    let (path, closed) = (
        format!("/operator/accounts/{id}"),
        json!({ "closed": true }),
    );
    let patched = gateway.operate(Method::PATCH, &path, Some(closed)).await;
    patched.assert_ok();
    let refused = message_as(&gateway, &key, &writing(json!({}))).await;
    refused.assert_message_error(402, "billing_error", Some("no_account"), None);
    assert_eq!(refused.headers["x-should-retry"], "false");
    let error = refused.message_error();
    assert_eq!(error["details"]["balance"], "1000.000000");
    let url = error["details"]["billing_url"].as_str().unwrap();
    assert!(error["message"].as_str().unwrap().contains(url), "{error}");
}

#[tokio::test]
async fn a_model_above_the_plan_names_both_tiers_and_the_page() {
    let gateway = TestGateway::start().await;
    let (_, free) = gateway.account(Plan::FREE).await;
    let dear = writing(json!({ "model": "svc-pro", "max_tokens": 200 }));
    let refused = message_as(&gateway, &free, &dear).await;
    let code = Some("tier_upgrade_required");
    refused.assert_message_error(403, "permission_error", code, Some("model"));
    let error = refused.message_error();
    let details = &error["details"];
    assert_eq!(details["current_tier"], "free");
    assert_eq!(details["required_tier"], "pro");
    assert_eq!(details["model"], "svc-pro");
    let url = details["upgrade_url"].as_str().unwrap();
    assert!(error["message"].as_str().unwrap().contains(url), "{error}");
}

#[tokio::test]
async fn a_window_without_the_tokens_says_when_to_retry() {
    let gateway = TestGateway::start_set(&[("LIMITS__TPM", "250")]).await;
    let mut counted = completion("Hi");
    counted["usage"] =
        json!({ "prompt_tokens": 11, "completion_tokens": 140, "total_tokens": 151 });
    gateway.upstream.answer_json(200, &counted);
    let body = writing(json!({ "max_tokens": 150 }));
    let served = gateway.message(&body).await;
    served.assert_ok();
    assert_no_ratelimit_headers(&served);
    gateway.idle().await;
    let refused = gateway.message(&body).await;
    refused.assert_message_error(429, "rate_limit_error", Some("tpm_exceeded"), None);
    let header = |name: &str| refused.headers[name].to_str().unwrap();
    let wait: u64 = header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(header("anthropic-ratelimit-tokens-limit"), "250");
    assert_eq!(header("anthropic-ratelimit-tokens-remaining"), "99");
    assert_eq!(refused.headers.get("x-should-retry"), None);
}

#[tokio::test]
async fn too_many_refusals_are_told_in_this_envelope() {
    let gateway = TestGateway::start_set(&[("LIMITS__REFUSED_PER_ACCOUNT", "5")]).await;
    for _ in 0..5 {
        assert_eq!(gateway.message(&json!({})).await.status, 400);
    }
    for path in [PATH, COUNT] {
        let request = gateway.request(Method::POST, path);
        let blocked = answer(request.json(&writing(json!({})))).await;
        let code = Some("refusals_exceeded");
        blocked.assert_message_error(429, "rate_limit_error", code, None);
        assert!(blocked.headers.contains_key("retry-after"));
        assert_no_ratelimit_headers(&blocked);
    }
}

#[tokio::test]
async fn a_provider_that_hangs_up_has_no_status() {
    let gateway = TestGateway::start().await;
    gateway.upstream.play(vec![Step::Close]);
    for streamed in [false, true] {
        let body = writing(json!({ "stream": streamed }));
        let failed = gateway.message(&body).await;
        failed.assert_message_error(502, "api_error", Some("upstream_error"), None);
        let details = &failed.message_error()["details"];
        assert_eq!(details.get("upstream_status"), None);
        assert_eq!(failed.headers.get("x-should-retry"), None);
    }
}

#[tokio::test]
async fn a_ledger_that_cannot_be_written_is_told_in_this_envelope() {
    if files_only("it locks the database's file") {
        return;
    }
    let gateway = TestGateway::start().await;
    let file = gateway.data.path().join("tollgate.db");
    let stranger = rusqlite::Connection::open(file).unwrap();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    for streamed in [false, true] {
        let body = writing(json!({ "stream": streamed }));
        let refused = gateway.message(&body).await;
        let code = Some("credit_reservation_unavailable");
        refused.assert_message_error(503, "api_error", code, None);
        assert_eq!(refused.headers["retry-after"], "1");
    }
    drop(stranger);
    for _ in 0..500 {
        if gateway.get("/health").await.status == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    gateway.message(&writing(json!({}))).await.assert_ok();
}

#[tokio::test]
async fn a_streamed_request_that_is_refused_has_a_status() {
    let gateway = TestGateway::start().await;
    for (field, status, code) in [
        (json!({ "model": "nope" }), 404, Some("model_not_found")),
        (json!({ "temperature": 2 }), 400, None),
    ] {
        let mut body = writing(field);
        body["stream"] = true.into();
        let refused = gateway.message(&body).await;
        assert_eq!(refused.status, status);
        assert_eq!(refused.headers["content-type"], "application/json");
        let details = &refused.message_error()["details"];
        assert_eq!(details["error_code"].as_str(), code);
    }
}

#[tokio::test]
async fn neither_content_type_nor_accept_matters() {
    let gateway = TestGateway::start().await;
    for (streamed, sent) in [(false, "application/json"), (true, "text/event-stream")] {
        if streamed {
            let chunks = crate::support::responses::two_words();
            gateway.upstream.answer_chunks(&chunks);
        }
        let body = writing(json!({ "stream": streamed })).to_string();
        let request = gateway.request(Method::POST, PATH).body(body);
        let request = request.header("content-type", "text/plain");
        let response = request.header("accept", "application/json").send();
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], sent);
        response.bytes().await.unwrap();
    }
}

/// Coding agents send it when they start, and only want to know that a server is there.
#[tokio::test]
async fn a_probe_gets_a_status_at_once() {
    let gateway = TestGateway::start().await;
    for path in ["/api/hello", "/"] {
        let probe = gateway.client.head(gateway.url(path)).send().await.unwrap();
        assert!(probe.status().as_u16() < 500, "{path}: {}", probe.status());
        assert!(probe.headers().contains_key("x-request-id"));
    }
}
