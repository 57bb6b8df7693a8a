//! §2.8, §4.9: requests that no target of a hybrid can serve, and conversations that are too long, in words by which
//! clients of the Messages API mend their requests.

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Answer, TestGateway,
    gateway::answer,
    messages::{COUNT, tool, writing},
};

/// The largest context of the targets of `auto`.
const CONTEXT: u64 = 20_000;
const CATALOG: &str = r#"
[defaults]
identity_prompt = false
builtin_tools = false
input = "1.00"
output = "2.00"
max_output = 15000
[[models]]
id = "narrow"
context_length = 10000
[[models]]
id = "wide"
context_length = 20000
[[models]]
id = "auto"
targets = ["narrow", "wide"]
[[models]]
id = "bare"
features = ["streaming"]
[[models]]
id = "auto-bare"
targets = ["bare"]
[[models]]
id = "talkative"
min_output = 1000
[[models]]
id = "auto-talkative"
targets = ["talkative"]
"#;

async fn start() -> TestGateway {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("catalog.toml");
    std::fs::write(&file, CATALOG).unwrap();
    let catalog = format!("[catalog]\nfile = {:?}\n", file.display());
    TestGateway::start_with(&catalog).await
}

/// A request to the hybrid with so many words.
fn asking(words: usize, more: Value) -> Value {
    let user = json!({ "role": "user", "content": "word ".repeat(words) });
    let mut body = writing(json!({ "model": "auto", "messages": [user] }));
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

async fn count(gateway: &TestGateway, body: &Value) -> u64 {
    let mut body = body.clone();
    body.as_object_mut().unwrap().remove("max_tokens");
    let counted = answer(gateway.request(Method::POST, COUNT).json(&body)).await;
    counted.assert_ok()["input_tokens"].as_u64().unwrap()
}

/// The message of a refusal because of the context.
#[track_caller]
fn overflow(refused: &Answer) -> &str {
    let code = Some("context_length_exceeded");
    refused.assert_message_error(400, "invalid_request_error", code, Some("messages"));
    refused.message_error()["message"].as_str().unwrap()
}

#[tokio::test]
async fn a_prompt_that_no_target_can_hold_is_too_long() {
    let gateway = start().await;
    for streamed in [false, true] {
        let body = asking(25_000, json!({ "stream": streamed }));
        let refused = gateway.message(&body).await;
        let message = overflow(&refused);
        let numbers = message.strip_prefix("prompt is too long: ").expect(message);
        let (sent, most) = numbers.split_once(" tokens > ").expect(message);
        assert!(sent.parse::<u64>().unwrap() >= 25_000, "{message}");
        assert_eq!(most, format!("{CONTEXT} maximum"));
    }
    assert_eq!(gateway.upstream.calls(), 0);
}

#[tokio::test]
async fn a_budget_that_no_target_can_hold_beside_the_prompt_is_to_be_lowered() {
    let gateway = start().await;
    let input = count(&gateway, &asking(8_000, json!({}))).await;
    let fits = CONTEXT - input;
    assert!((5_000..15_000).contains(&fits), "{fits}");
    let budget = fits + 1;
    let refused = gateway
        .message(&asking(8_000, json!({ "max_tokens": budget })))
        .await;
    let message = overflow(&refused);
    let words = format!(
        "input length and `max_tokens` exceed context limit: {input} + {budget} > {CONTEXT}"
    );
    assert!(message.starts_with(&words), "{message}");
    let lowered = asking(8_000, json!({ "max_tokens": fits }));
    gateway.message(&lowered).await.assert_ok();
}

/// The number is what a client shortens its conversation by.
#[tokio::test]
async fn a_prompt_that_no_target_can_hold_is_counted() {
    let gateway = start().await;
    let tokens = count(&gateway, &asking(25_000, json!({}))).await;
    assert!(tokens >= 25_000, "{tokens}");
}

#[tokio::test]
async fn a_demand_that_no_target_meets_is_refused_with_its_path() {
    let gateway = start().await;
    let tools = json!({ "model": "auto-bare", "tools": [tool("f")] });
    let message = gateway.refuses_message(&writing(tools), "tools").await;
    assert!(message.contains("`auto-bare`"), "{message}");
    let small = json!({ "model": "auto-talkative", "max_tokens": 999 });
    let message = gateway.refuses_message(&writing(small), "max_tokens").await;
    assert!(message.contains("1000 or more"), "{message}");
}

#[tokio::test]
async fn a_format_that_no_target_keeps_to_is_refused_with_its_path() {
    let gateway = start().await;
    let format = json!({ "type": "json_schema", "schema": { "type": "object" } });
    let body = json!({ "model": "auto-bare", "output_config": { "format": format } });
    gateway
        .refuses_message(&writing(body), "output_config.format")
        .await;
}

#[tokio::test]
async fn a_provider_that_gives_no_numbers_is_quoted_without_them() {
    let gateway = TestGateway::start().await;
    let coded =
        json!({ "error": { "message": "x", "type": "t", "code": "context_length_exceeded" } });
    let expected = "prompt is too long: it exceeds the model's maximum context length";
    for status in [200, 400, 413] {
        gateway.upstream.answer_json(status, &coded);
        let refused = gateway.message(&writing(json!({}))).await;
        let code = Some("context_length_exceeded");
        refused.assert_message_error(400, "invalid_request_error", code, None);
        assert_eq!(refused.message_error()["message"], expected, "{status}");
    }
    // At the beginning of a stream.
    let event = format!("data: {coded}\n\n");
    gateway.upstream.answer_stream(&event);
    let refused = gateway.message(&writing(json!({ "stream": true }))).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.message_error()["message"], expected);
}
