//! A fake provider of the Messages API: its responses, events and failures.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    Answer, TestGateway,
    gateway::{PROVIDER_KEY, UPSTREAM_MODEL},
};

/// Starts a gateway whose provider has kind `anthropic`.
pub async fn start() -> TestGateway {
    TestGateway::start_set(&[("PROVIDERS__FAKE__KIND", "anthropic")]).await
}

/// A model without identity prompt and built-in tools, so that requests of the Messages API are forwarded as they are.
pub const OWN: &str = "svc-own";

/// Starts a gateway with that model, whose provider has kind `anthropic`, and with additional configuration.
pub async fn start_own(more: &str) -> TestGateway {
    let folder = TempDir::new().unwrap();
    let catalog = folder.path().join("catalog.toml");
    let model = format!(
        "[[models]]\nid = \"{OWN}\"\nidentity_prompt = false\nbuiltin_tools = false\ninput = \"1.00\"\n\
         output = \"5.00\"\ncached_input = \"0.10\"\ncache_write = \"1.25\"\n"
    );
    std::fs::write(&catalog, model).unwrap();
    let more = format!(
        "{more}\n[catalog]\nfile = {:?}\nextends = true\n",
        catalog.display()
    );
    let kind = [("PROVIDERS__FAKE__KIND", "anthropic")];
    let gateway = TestGateway::start_with_settings(&more, &kind).await;
    gateway
        .upstream
        .answer_json(200, &message(json!([text("Hello")]), "end_turn"));
    gateway
}

/// A complete response in the API's form.
pub fn message(content: Value, stop_reason: &str) -> Value {
    json!({
        "id": "msg_01", "type": "message", "role": "assistant", "model": UPSTREAM_MODEL,
        "content": content, "stop_reason": stop_reason, "stop_sequence": null,
        "usage": { "input_tokens": 11, "output_tokens": 3 },
    })
}

pub fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

pub fn failure(kind: &str, text: &str) -> Value {
    json!({ "type": "error", "error": { "type": kind, "message": text }, "request_id": "req_01" })
}

/// Serializes events as the API does, with their names.
pub fn events(events: &[Value]) -> String {
    let events = events.iter().map(|event| {
        let kind = event["type"].as_str().unwrap();
        format!("event: {kind}\ndata: {event}\n\n")
    });
    events.collect()
}

pub fn begun(usage: Value) -> Value {
    json!({ "type": "message_start", "message": {
        "id": "msg_01", "type": "message", "role": "assistant", "model": UPSTREAM_MODEL,
        "content": [], "stop_reason": null, "usage": usage,
    } })
}

/// The events of one content block with these deltas.
pub fn block(index: u32, block: Value, deltas: &[Value]) -> Vec<Value> {
    let mut events =
        vec![json!({ "type": "content_block_start", "index": index, "content_block": block })];
    let deltas = deltas
        .iter()
        .map(|delta| json!({ "type": "content_block_delta", "index": index, "delta": delta }));
    events.extend(deltas);
    events.push(json!({ "type": "content_block_stop", "index": index }));
    events
}

pub fn says(text: &str) -> Value {
    json!({ "type": "text_delta", "text": text })
}

pub fn ended(stop_reason: &str, usage: Value) -> [Value; 2] {
    let delta = json!({ "stop_reason": stop_reason, "stop_sequence": null });
    [
        json!({ "type": "message_delta", "delta": delta, "usage": usage }),
        json!({ "type": "message_stop" }),
    ]
}

/// "Hello" in two pieces, with a usage of 11 input and 3 output tokens.
pub fn hello_events() -> Vec<Value> {
    let mut stream = vec![
        begun(json!({ "input_tokens": 11, "output_tokens": 1 })),
        json!({ "type": "ping" }),
    ];
    stream.extend(block(0, text(""), &[says("Hel"), says("lo")]));
    stream.extend(ended("end_turn", json!({ "output_tokens": 3 })));
    stream
}

/// Asserts that nothing visible to the caller reveals which provider served the request.
#[track_caller]
pub fn assert_anonymous(gateway: &TestGateway, shown: &str) {
    let shown = shown.to_lowercase();
    let port = format!(":{}", gateway.upstream.address.port());
    let names = ["anthropic", "claude", "toolu_", "msg_01", "req_01"];
    let ours = [PROVIDER_KEY, UPSTREAM_MODEL, "127.0.0.1", &port];
    for name in names.into_iter().chain(ours) {
        assert!(!shown.contains(name), "{name}: {shown}");
    }
}

#[track_caller]
pub fn assert_anonymous_answer(gateway: &TestGateway, answer: &Answer) {
    // The page of the request is ours.
    let page = answer.body["error"]["request_url"].as_str();
    let shown = format!("{}{:?}", answer.body, answer.headers);
    assert_anonymous(gateway, &shown.replace(page.unwrap_or("no page"), ""));
}
