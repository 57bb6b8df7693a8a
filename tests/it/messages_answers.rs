//! §4.9: a message in one piece.

use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    messages::{MODEL, tool, tool_result, tool_use, writing},
    responses::{calling, tool_call},
    upstream::{chunk, completion, usage_chunk},
};

#[tokio::test]
async fn a_message_has_every_key_that_clients_expect() {
    let gateway = TestGateway::start().await;
    let answer = gateway.message(&writing(json!({}))).await;
    let mut message = answer.assert_ok().clone();
    assert_eq!(answer.headers["request-id"], answer.headers["x-request-id"]);
    let id = message["id"].take();
    assert!(id.as_str().unwrap().starts_with("msg_"), "{id}");
    let expected = json!({
        "id": null, "type": "message", "role": "assistant", "model": MODEL,
        "content": [{ "type": "text", "text": "Hello from upstream" }],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {
            "input_tokens": 11, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
            "cache_creation": { "ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0 },
            "output_tokens": 3, "output_tokens_details": { "thinking_tokens": 0 },
            "server_tool_use": null, "service_tier": "standard",
        },
    });
    assert_eq!(message, expected);
    assert!(!answer.body.to_string().contains("vendor"));
}

#[tokio::test]
async fn cached_tokens_are_not_input_tokens() {
    let gateway = TestGateway::start().await;
    let mut counted = completion("Hi");
    counted["usage"] = json!({
        "prompt_tokens": 30, "completion_tokens": 9, "total_tokens": 39,
        "prompt_tokens_details": { "cached_tokens": 20, "cache_write_tokens": 4 },
        "completion_tokens_details": { "reasoning_tokens": 5 },
    });
    gateway.upstream.answer_json(200, &counted);
    let answer = gateway.message(&writing(json!({}))).await;
    let usage = &answer.assert_ok()["usage"];
    assert_eq!(usage["input_tokens"], 6);
    assert_eq!(usage["cache_read_input_tokens"], 20);
    assert_eq!(usage["cache_creation_input_tokens"], 4);
    assert_eq!(usage["output_tokens"], 9);
    assert_eq!(usage["output_tokens_details"]["thinking_tokens"], 5);
}

#[tokio::test]
async fn the_finish_reason_becomes_the_stop_reason() {
    let gateway = TestGateway::start().await;
    for (finish, stop) in [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
    ] {
        let mut ended = completion("Hi");
        ended["choices"][0]["finish_reason"] = finish.into();
        gateway.upstream.answer_json(200, &ended);
        let answer = gateway.message(&writing(json!({}))).await;
        assert_eq!(answer.assert_ok()["stop_reason"], stop);
    }
    let mut empty = completion("");
    empty["choices"][0]["finish_reason"] = "length".into();
    gateway.upstream.answer_json(200, &empty);
    let answer = gateway.message(&writing(json!({}))).await;
    assert_eq!(answer.assert_ok()["content"], json!([]), "no empty text");
}

#[tokio::test]
async fn calls_become_blocks_after_the_text() {
    let gateway = TestGateway::start().await;
    let mut called = calling(&[
        tool_call("call_a", "f", r#"{"x": "ü"}"#),
        tool_call("9", "g", "not json"),
        tool_call("call_b", "f", ""),
    ]);
    called["choices"][0]["message"]["content"] = "I look.".into();
    gateway.upstream.answer_json(200, &called);
    let body = writing(json!({ "tools": [tool("f"), tool("g")] }));
    let answer = gateway.message(&body).await;
    let message = answer.assert_ok();
    assert_eq!(message["stop_reason"], "tool_use");
    assert_eq!(
        message["content"],
        json!([
            { "type": "text", "text": "I look." },
            tool_use("toolu_a", "f", json!({ "x": "ü" })),
            tool_use("toolu_x_9", "g", json!({ "arguments": "not json" })),
            tool_use("toolu_b", "f", json!({})),
        ])
    );
    // What a client sends back is what the provider knows.
    let mut next = body.clone();
    let results = ["toolu_a", "toolu_x_9", "toolu_b"].map(|id| tool_result(id, json!("r")));
    next["messages"].as_array_mut().unwrap().extend([
        json!({ "role": "assistant", "content": message["content"] }),
        json!({ "role": "user", "content": results }),
    ]);
    gateway
        .upstream
        .answer_json(200, &calling(&[tool_call("9", "f", "{}")]));
    let again = gateway.message(&next).await;
    let sent = gateway.upstream.last_body()["messages"].clone();
    let ids = |at: usize| sent[1]["tool_calls"][at]["id"].clone();
    assert_eq!([ids(0), ids(1), ids(2)], ["call_a", "9", "call_b"]);
    assert_eq!(sent[3]["tool_call_id"], "9");
    // The provider counts from the start again: the ID is replaced, because clients take it for an old call.
    let id = again.assert_ok()["content"][0]["id"].as_str().unwrap();
    assert!(id.starts_with("toolu_") && id != "toolu_x_9", "{id}");
}

/// Clients send thinking back, and no provider could read what has no signature.
#[tokio::test]
async fn reasoning_of_a_provider_is_no_thinking_block() {
    let gateway = TestGateway::start().await;
    let said = json!([{ "type": "text", "text": "Hi" }]);
    let mut reasoned = completion("Hi");
    reasoned["choices"][0]["message"]["reasoning_content"] = "hm".into();
    gateway.upstream.answer_json(200, &reasoned);
    let answer = gateway.message(&writing(json!({}))).await;
    assert_eq!(answer.assert_ok()["content"], said);
    gateway.upstream.answer_chunks(&[
        chunk(json!({ "reasoning_content": "hm" }), None),
        chunk(json!({ "content": "Hi" }), None),
        chunk(json!({}), Some("stop")),
        usage_chunk(11, 3),
    ]);
    let events = gateway.message_events(&writing(json!({}))).await;
    assert_eq!(events.assembled()["content"], said);
}

#[tokio::test]
async fn edits_of_the_context_are_answered_with_none() {
    let gateway = TestGateway::start().await;
    let edits =
        json!({ "context_management": { "edits": [{ "type": "clear_tool_uses_20250919" }] } });
    let answer = gateway.message(&writing(edits.clone())).await;
    let none = json!({ "applied_edits": [] });
    assert_eq!(answer.assert_ok()["context_management"], none);
    gateway
        .upstream
        .answer_chunks(&crate::support::responses::two_words());
    let events = gateway.message_events(&writing(edits)).await;
    assert_eq!(events.first("message_delta")["context_management"], none);
    let plain = gateway.message_events(&writing(json!({}))).await;
    assert_eq!(plain.first("message_delta").get("context_management"), None);
}

#[tokio::test]
async fn a_message_without_usage_is_free() {
    let gateway = TestGateway::start().await;
    let before = gateway.balance().await;
    let mut uncounted = completion("Hi");
    uncounted["usage"] = Value::Null;
    gateway.upstream.answer_json(200, &uncounted);
    let answer = gateway.message(&writing(json!({}))).await;
    let usage = &answer.assert_ok()["usage"];
    assert_eq!(
        (&usage["input_tokens"], &usage["output_tokens"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(gateway.balance().await, before);
}
