//! §4.10: counting the tokens of a message.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, TestGateway,
    gateway::answer,
    messages::{COUNT, MODEL, tool, writing},
};

async fn count(gateway: &TestGateway, body: &Value) -> Answer {
    answer(gateway.request(Method::POST, COUNT).json(body)).await
}

fn question() -> Value {
    json!({ "model": MODEL, "messages": [{ "role": "user", "content": "Hello, how are you?" }] })
}

#[tokio::test]
async fn counting_says_what_a_message_would_reserve() {
    let gateway = TestGateway::start().await;
    let counted = count(&gateway, &question()).await;
    let tokens = counted.assert_ok()["input_tokens"].as_u64().unwrap();
    assert_eq!(counted.body, json!({ "input_tokens": tokens }));
    let mut asked = question();
    asked["max_tokens"] = 10.into();
    gateway
        .upstream
        .answer_chunks(&crate::support::responses::two_words());
    let events = gateway.message_events(&asked).await;
    let start = &events.first("message_start")["message"]["usage"];
    assert_eq!(start["input_tokens"], tokens);
    let mut more = question();
    more["tools"] = json!([tool("f")]);
    more["system"] = "Be brief, and friendly.".into();
    let more = count(&gateway, &more).await;
    assert!(more.assert_ok()["input_tokens"].as_u64().unwrap() > tokens + 5);
}

#[tokio::test]
async fn counting_is_free_and_in_no_window() {
    let gateway = TestGateway::start_set(&[("LIMITS__RPM", "1"), ("LIMITS__TPM", "2000")]).await;
    let before = gateway.balance().await;
    let body = question();
    let all = join_all((0..24).map(|_| count(&gateway, &body))).await;
    for counted in &all {
        counted.assert_ok();
    }
    assert_eq!(gateway.balance().await, before);
    assert_eq!(gateway.upstream.calls(), 0);
    gateway.message(&writing(json!({}))).await.assert_ok();
}

#[tokio::test]
async fn counting_is_bounded() {
    let gateway = TestGateway::start().await;
    let body = question();
    let mut refused = None;
    for _ in 0..1_000 {
        let counted = count(&gateway, &body).await;
        if counted.status != 200 {
            refused = Some(counted);
            break;
        }
    }
    let refused = refused.expect("no more than 600 a minute");
    refused.assert_message_error(429, "rate_limit_error", Some("counts_exceeded"), None);
    assert!(refused.headers.contains_key("retry-after"));
    gateway.message(&writing(json!({}))).await.assert_ok();
}

#[tokio::test]
async fn shape_and_model_are_checked() {
    let gateway = TestGateway::start().await;
    for (body, path) in [
        (json!({}), "model"),
        (json!({ "model": MODEL }), "messages"),
        (
            json!({ "model": MODEL, "messages": [{ "role": "user", "content": [{ "type": "image" }] }] }),
            "messages.0.content.0.image",
        ),
        (
            json!({ "model": MODEL, "messages": [{ "role": "user", "content": "a" }], "tools": [{}] }),
            "tools.0.name",
        ),
    ] {
        let refused = count(&gateway, &body).await;
        refused.assert_message_error(400, "invalid_request_error", None, Some(path));
    }
}

#[tokio::test]
async fn fields_about_the_answer_have_no_effect_on_the_count() {
    let gateway = TestGateway::start().await;
    let plain = count(&gateway, &question()).await;
    let mut body = question();
    body["max_tokens"] = 10_000_000.into();
    body["stream"] = true.into();
    body["thinking"] = json!({ "type": "enabled", "budget_tokens": 2_048 });
    body["context_management"] = json!({ "edits": [] });
    let counted = count(&gateway, &body).await;
    assert_eq!(counted.assert_ok(), plain.assert_ok());
    body.as_object_mut().unwrap().remove("max_tokens");
    count(&gateway, &body).await.assert_ok();
    body["thinking"]["budget_tokens"] = 1_023.into();
    let refused = count(&gateway, &body).await;
    let param = Some("thinking.budget_tokens");
    refused.assert_message_error(400, "invalid_request_error", None, param);
    let mut threaded = question();
    threaded["thread"] = json!({ "type": "create" });
    let refused = count(&gateway, &threaded).await;
    let code = Some("thread_unsupported_request");
    refused.assert_message_error(400, "invalid_request_error", code, Some("thread"));
    assert_eq!(gateway.upstream.calls(), 0);
}
