//! §4.9: the events of a streamed message.

use serde_json::json;

use crate::support::{
    Gate, Step, TestGateway,
    messages::{MODEL, MessageEvents, tool, tool_use, writing},
    responses::two_words,
    upstream::{chunk, events, stream_head, usage_chunk},
};

fn fragment(
    index: u32,
    id: Option<&str>,
    name: Option<&str>,
    arguments: &str,
) -> serde_json::Value {
    let mut call = json!({ "index": index, "function": { "arguments": arguments } });
    if let Some(id) = id {
        call["id"] = id.into();
    }
    if let Some(name) = name {
        call["function"]["name"] = name.into();
    }
    chunk(json!({ "tool_calls": [call] }), None)
}

#[tokio::test]
async fn a_text_is_streamed_with_its_usage_at_the_end() {
    let gateway = TestGateway::start().await;
    gateway.upstream.answer_chunks(&two_words());
    let events = gateway.message_events(&writing(json!({}))).await;
    assert_eq!(
        events.kinds(),
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    let start = &events.0[0]["message"];
    assert_eq!(start["model"], MODEL);
    assert_eq!(
        (&start["content"], &start["stop_reason"]),
        (&json!([]), &json!(null))
    );
    // The estimate is never below the count, and the window was reserved by it.
    let estimate = start["usage"]["input_tokens"].as_u64().unwrap();
    assert!((1..100).contains(&estimate), "{estimate}");
    let delta = events.first("message_delta");
    assert_eq!(
        delta["delta"],
        json!({ "stop_reason": "end_turn", "stop_sequence": null })
    );
    assert_eq!(
        (
            &delta["usage"]["input_tokens"],
            &delta["usage"]["output_tokens"]
        ),
        (&json!(11), &json!(3))
    );
    let message = events.assembled();
    assert_eq!(
        message["content"],
        json!([{ "type": "text", "text": "Grüß dich 😀" }])
    );
    let whole = {
        gateway
            .upstream
            .answer_json(200, &crate::support::upstream::completion("Grüß dich 😀"));
        gateway.message(&writing(json!({}))).await.body
    };
    let keys = |message: &serde_json::Value| {
        let keys = message.as_object().unwrap().keys();
        keys.cloned().collect::<Vec<_>>()
    };
    assert_eq!(keys(&message), keys(&whole));
    assert_eq!(message["usage"], whole["usage"]);
}

#[tokio::test]
async fn calls_are_blocks_of_their_own_one_after_the_other() {
    let gateway = TestGateway::start().await;
    gateway.upstream.answer_chunks(&[
        chunk(json!({ "content": "I look." }), None),
        fragment(0, Some("call_a"), Some("f"), ""),
        fragment(0, None, None, "{\"x\":"),
        // The second call begins before the first is complete, and a text comes between.
        fragment(1, Some("call_b"), Some("g"), "{"),
        chunk(json!({ "content": " Late." }), None),
        fragment(0, None, None, "1}"),
        fragment(1, None, None, "}"),
        fragment(2, Some("call_c"), Some("f"), ""),
        chunk(json!({}), Some("tool_calls")),
        usage_chunk(11, 3),
    ]);
    let body = writing(json!({ "tools": [tool("f"), tool("g")] }));
    let events = gateway.message_events(&body).await;
    let message = events.assembled();
    assert_eq!(message["stop_reason"], "tool_use");
    assert_eq!(
        message["content"],
        json!([
            { "type": "text", "text": "I look." },
            tool_use("toolu_a", "f", json!({ "x": 1 })),
            tool_use("toolu_b", "g", json!({})),
            tool_use("toolu_c", "f", json!({})),
            { "type": "text", "text": " Late." },
        ])
    );
    let starts = events
        .0
        .iter()
        .filter(|e| e["type"] == "content_block_start");
    let calls = starts.filter(|e| e["content_block"]["type"] == "tool_use");
    assert!(
        calls
            .clone()
            .all(|e| e["content_block"]["input"] == json!({}))
    );
    assert_eq!(calls.count(), 3);
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error() {
    let gateway = TestGateway::start().await;
    let before = gateway.balance().await;
    let text = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hal\"}}]}\n\n";
    gateway.upstream.play(vec![
        Step::Send(stream_head()),
        Step::Send(text.as_bytes().to_vec()),
        Step::Reset,
    ]);
    let events = gateway.message_events(&writing(json!({}))).await;
    assert_eq!(
        events.kinds(),
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "error"
        ]
    );
    let event = events.first("error");
    assert_eq!(event["error"]["type"], "api_error");
    assert_eq!(
        event["error"]["details"]["error_code"],
        "stream_interrupted"
    );
    assert!(event["request_id"].as_str().unwrap().starts_with("req_"));
    gateway.idle().await;
    assert_eq!(
        gateway.balance().await,
        before,
        "a broken message costs nothing"
    );
}

#[tokio::test]
async fn a_failure_before_the_first_event_has_a_status() {
    let gateway = TestGateway::start().await;
    gateway
        .upstream
        .answer_json(500, &json!({ "error": { "message": "oh" } }));
    let response = gateway.open_message_events(&writing(json!({}))).await;
    assert_eq!(response.status(), 502);
    let body: serde_json::Value = response.json().await.unwrap();
    assert_eq!(body["error"]["type"], "api_error");
    assert_eq!(body["error"]["details"]["upstream_status"], 500);
}

#[tokio::test]
async fn the_simulator_obeys_a_directive_once_though_a_reminder_follows() {
    let simulator = "[providers.sim]\nkind = \"simulator\"\n[[deployments]]\nmodel = \"svc-basic\"\nprovider = \"sim\"";
    let gateway = TestGateway::start_with(simulator).await;
    let reminder = json!({ "role": "system", "content": "Remember." });
    let user = json!({ "role": "user", "content": "[[sim tool=f {\"a\":1}]]" });
    let ask = |messages: serde_json::Value| {
        writing(json!({ "model": "svc-basic", "tools": [tool("f")], "messages": messages }))
    };
    let called = gateway.message(&ask(json!([user, reminder]))).await;
    let content = called.assert_ok()["content"].clone();
    assert_eq!(content[0]["input"], json!({ "a": 1 }));
    let result = json!({ "role": "user", "content": [
        { "type": "tool_result", "tool_use_id": content[0]["id"], "content": "42" } ] });
    let turn = json!({ "role": "assistant", "content": content });
    let answered = gateway
        .message(&ask(json!([user, turn, result, reminder])))
        .await;
    let message = answered.assert_ok();
    assert_eq!(message["stop_reason"], "end_turn");
    assert!(
        message["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("42"),
        "{message}"
    );
    let streamed = gateway.message_events(&ask(json!([user]))).await;
    assert_eq!(streamed.assembled()["content"][0]["name"], "f");
}

/// Opens a stream whose provider is silent until `gate` opens, and then plays `steps`. Returns what comes before that,
/// and what comes after.
async fn after_silence(gateway: &TestGateway, steps: Vec<Step>) -> (String, MessageEvents) {
    let gate = Gate::default();
    let mut script = vec![Step::Send(stream_head()), Step::Until(gate.clone())];
    script.extend(steps);
    gateway.upstream.play(script);
    let mut response = gateway.open_message_events(&writing(json!({}))).await;
    assert_eq!(response.status(), 200);
    let mut text = String::from_utf8(response.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    let silent = text.clone();
    gate.open();
    while let Some(bytes) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    (silent, MessageEvents::read(&text))
}

#[tokio::test]
async fn a_silent_provider_is_bridged_by_pings() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
    let words = events(&two_words()).into_bytes();
    let (silent, message) = after_silence(&gateway, vec![Step::Send(words), Step::Close]).await;
    assert_eq!(silent, ping);
    assert_eq!(message.assembled()["content"][0]["text"], "Grüß dich 😀");
    // What fails after the response has started is its last event.
    let (silent, failed) = after_silence(&gateway, vec![Step::Reset]).await;
    assert_eq!(silent, ping);
    assert_eq!(failed.kinds(), ["ping", "error"]);
    gateway.idle().await;
}
