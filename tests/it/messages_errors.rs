//! §4.9, §7: every failure of a request of the Messages API, in its envelope.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Plan, TestGateway,
    gateway::answer,
    messages::{COUNT, MODEL, PATH, writing},
};

async fn message_as(gateway: &TestGateway, key: &str, body: &Value) -> crate::support::Answer {
    let request = gateway.client.post(gateway.url(PATH));
    answer(request.header("x-api-key", key).json(body)).await
}

#[tokio::test]
async fn a_providers_failure_is_told_by_its_status() {
    let gateway = TestGateway::start().await;
    let before = gateway.balance().await;
    let upstream = Some("upstream_error");
    for (status, expected, kind, retry) in [
        (400, 400, "invalid_request_error", Some("false")),
        (413, 400, "invalid_request_error", Some("false")),
        (422, 400, "invalid_request_error", Some("false")),
        (401, 502, "api_error", Some("true")),
        (404, 502, "api_error", Some("true")),
        (418, 502, "api_error", Some("false")),
        (429, 529, "overloaded_error", None),
        (503, 529, "overloaded_error", None),
        (529, 529, "overloaded_error", None),
        (500, 502, "api_error", None),
    ] {
        gateway.upstream.answer_json(
            status,
            &json!({ "error": { "message": "it did not work" } }),
        );
        for streamed in [false, true] {
            let body = writing(json!({ "stream": streamed }));
            let failed = gateway.message(&body).await;
            failed.assert_message_error(expected, kind, upstream, None);
            let details = &failed.message_error()["details"];
            assert_eq!(details["upstream_status"], status);
            let should = failed.headers.get("x-should-retry");
            assert_eq!(should.map(|v| v.to_str().unwrap()), retry, "{status}");
        }
    }
    gateway.idle().await;
    assert_eq!(gateway.balance().await, before);
}

#[tokio::test]
async fn a_conversation_that_is_too_long_has_words_that_clients_know() {
    let gateway = TestGateway::start().await;
    for (reason, expected) in [
        (
            "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens.",
            "prompt is too long: 5000 tokens > 4096 maximum",
        ),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (904 in the \
             messages, 4096 in the completion).",
            "input length and `max_tokens` exceed context limit: 904 + 4096 > 4096",
        ),
    ] {
        let error = json!({ "error": { "message": reason, "code": "context_length_exceeded" } });
        gateway.upstream.answer_json(400, &error);
        let refused = gateway.message(&writing(json!({}))).await;
        let code = Some("context_length_exceeded");
        refused.assert_message_error(400, "invalid_request_error", code, None);
        let message = refused.message_error()["message"].as_str().unwrap();
        assert!(message.starts_with(expected), "{message}");
    }
}

#[tokio::test]
async fn limits_are_told_by_headers_of_this_api() {
    let gateway = TestGateway::start_set(&[("LIMITS__RPM", "1"), ("LIMITS__TPM", "1000")]).await;
    gateway.message(&writing(json!({}))).await.assert_ok();
    let refused = gateway.message(&writing(json!({}))).await;
    refused.assert_message_error(429, "rate_limit_error", Some("rpm_exceeded"), None);
    let header = |name: &str| refused.headers[name].to_str().unwrap();
    let wait: u64 = header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(header("anthropic-ratelimit-requests-limit"), "1");
    assert_eq!(header("anthropic-ratelimit-requests-remaining"), "0");
    assert_eq!(header("anthropic-ratelimit-tokens-limit"), "1000");
    for name in ["requests", "tokens"] {
        let reset = header(&format!("anthropic-ratelimit-{name}-reset"));
        assert!(reset.ends_with('Z') && reset.contains('T'), "{reset}");
    }
    for name in refused.headers.keys() {
        let name = name.as_str();
        assert!(
            !name.starts_with("x-ratelimit") && !name.contains("unified"),
            "{name}"
        );
    }
    // It can never fit.
    let body = writing(json!({ "model": "svc-native-light", "max_tokens": 5000 }));
    let never = gateway.message(&body).await;
    never.assert_message_error(429, "rate_limit_error", Some("tpm_exceeded"), None);
    assert_eq!(never.headers.get("retry-after"), None);
    assert_eq!(never.headers["x-should-retry"], "false");
}

#[tokio::test]
async fn a_message_without_credit_names_the_billing_page() {
    let gateway = TestGateway::start().await;
    let body = json!({ "email": "poor@example.com", "track": "business", "tier": "flex" });
    let account = gateway
        .operate(Method::POST, "/operator/accounts", Some(body))
        .await;
    let id = account.assert_ok()["id"].as_str().unwrap().to_owned();
    let (_, key) = gateway.new_key(&id).await;
    let refused = message_as(&gateway, &key, &writing(json!({}))).await;
    refused.assert_message_error(402, "billing_error", Some("insufficient_credits"), None);
    let error = refused.message_error();
    let url = error["details"]["billing_url"].as_str().unwrap();
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains(url) && !message.contains("credit balance is too low"),
        "{message}"
    );
    assert!(error["details"]["needed"].is_string());
    let path = format!("/operator/accounts/{id}");
    gateway
        .operate(Method::PATCH, &path, Some(json!({ "closed": true })))
        .await
        .assert_ok();
    let closed = message_as(&gateway, &key, &writing(json!({}))).await;
    closed.assert_message_error(402, "billing_error", Some("no_account"), None);
}

#[tokio::test]
async fn models_and_plans_are_checked() {
    let gateway = TestGateway::start().await;
    for path in [PATH, COUNT] {
        let unknown = writing(json!({ "model": "nope" }));
        let request = gateway.request(Method::POST, path).json(&unknown);
        let refused = answer(request).await;
        refused.assert_message_error(
            404,
            "not_found_error",
            Some("model_not_found"),
            Some("model"),
        );
        assert!(
            refused.message_error()["message"]
                .as_str()
                .unwrap()
                .contains("nope")
        );
        let (_, free) = gateway.account(Plan::FREE).await;
        let dear = writing(json!({ "model": "svc-pro" }));
        let request = gateway
            .client
            .post(gateway.url(path))
            .header("x-api-key", &free);
        let refused = answer(request.json(&dear)).await;
        let code = Some("tier_upgrade_required");
        refused.assert_message_error(403, "permission_error", code, Some("model"));
        assert_eq!(refused.message_error()["details"]["required_tier"], "pro");
    }
}

#[tokio::test]
async fn the_envelope_follows_the_path_and_the_version_header() {
    let gateway = TestGateway::start().await;
    let version = ("anthropic-version", "2023-06-01");
    for (method, path) in [
        (Method::GET, PATH),
        (Method::POST, "/v1/messages/batches"),
        (Method::DELETE, COUNT),
    ] {
        let missing = answer(gateway.request(method, path)).await;
        missing.assert_message_error(404, "not_found_error", Some("route_not_found"), None);
    }
    let files = || gateway.request(Method::GET, "/v1/files");
    answer(files())
        .await
        .assert_error(404, "not_found", Some("route_not_found"), None);
    let similar = answer(gateway.request(Method::GET, "/v1/messages-of-others")).await;
    similar.assert_error(404, "not_found", Some("route_not_found"), None);
    let other = answer(files().header(version.0, version.1)).await;
    other.assert_message_error(404, "not_found_error", Some("route_not_found"), None);
    let keyless = gateway.client.get(gateway.url("/v1/files"));
    let keyless = answer(keyless.header(version.0, version.1)).await;
    keyless.assert_message_error(401, "authentication_error", Some("missing_api_key"), None);
    let by_key = gateway.client.get(gateway.url("/v1/files"));
    let by_key = by_key.header("x-api-key", &gateway.key);
    let by_key = answer(by_key.header(version.0, version.1)).await;
    by_key.assert_message_error(404, "not_found_error", Some("route_not_found"), None);
    // A chat is a chat, whatever its headers are.
    let chat = gateway.request(Method::POST, "/v1/chat/completions");
    let chat = answer(chat.header(version.0, version.1).body("{")).await;
    chat.assert_error(400, "invalid_request_error", None, None);
}

#[tokio::test]
async fn the_callers_request_id_is_used_everywhere() {
    let gateway = TestGateway::start().await;
    for (body, status) in [(writing(json!({})), 200), (json!({}), 400)] {
        let request = gateway.request(Method::POST, PATH).json(&body);
        let answer = answer(request.header("x-request-id", "mine-1")).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.headers["request-id"], "mine-1");
        assert_eq!(answer.headers["x-request-id"], "mine-1");
        if status == 400 {
            assert_eq!(answer.body["request_id"], "mine-1");
        }
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_by_its_own_type() {
    let gateway = TestGateway::start_set(&[("SERVER__MAX_BODY_BYTES", "2048")]).await;
    let long = "x".repeat(4_000);
    let body = writing(json!({ "messages": [{ "role": "user", "content": long }] }));
    let refused = gateway.message(&body).await;
    refused.assert_message_error(413, "request_too_large", None, None);
    let model = json!({ "model": MODEL });
    let missing = gateway.message(&model).await;
    missing.assert_message_error(400, "invalid_request_error", None, Some("max_tokens"));
}
