//! §4.9: what each block becomes, and the order of tool calls and their results.

use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    messages::{saying, tool_result, tool_use, with_block},
};

/// The messages that the provider receives.
async fn forwarded(gateway: &TestGateway, messages: Value) -> Value {
    gateway.forwards_message(&saying(messages)).await["messages"].clone()
}

#[tokio::test]
async fn a_block_with_text_becomes_text() {
    let gateway = TestGateway::start().await;
    for (block, text) in [
        (
            json!({ "type": "text", "text": "a \"b\" \u{e9}" }),
            "a \"b\" \u{e9}",
        ),
        (
            json!({ "type": "text", "text": "a", "citations": null }),
            "a",
        ),
        (json!({ "type": "text", "text": "a", "citations": [] }), "a"),
        (
            json!({
                "type": "document", "title": "T", "context": "C", "citations": { "enabled": false },
                "source": { "type": "text", "media_type": "text/plain", "data": "D" },
            }),
            "T\nC\nD",
        ),
        (
            json!({ "type": "document", "source": { "type": "content", "content": [
                { "type": "text", "text": "x" }, { "type": "text", "text": "y" } ] } }),
            "x\ny",
        ),
        (
            json!({ "type": "document", "source": { "type": "content", "content": "z" } }),
            "z",
        ),
        (
            json!({ "type": "search_result", "title": "T", "source": "https://x", "content": [
                { "type": "text", "text": "found" } ] }),
            "T\nhttps://x\nfound",
        ),
    ] {
        let sent = gateway.forwards_message(&with_block(block.clone())).await;
        let expected = json!([{ "role": "user", "content": text }]);
        assert_eq!(sent["messages"], expected, "{block}");
    }
}

#[tokio::test]
async fn a_block_that_the_model_cannot_read_is_refused_with_its_path() {
    let gateway = TestGateway::start().await;
    let base64 = json!({ "type": "base64", "media_type": "image/png", "data": "AAAA" });
    let at = |tail: &str| format!("messages.0.content.0.{tail}");
    for (block, path) in [
        (json!({ "type": "image", "source": base64 }), at("image")),
        (
            json!({ "type": "image", "source": { "type": "url", "url": "https://x" } }),
            at("image"),
        ),
        (
            json!({ "type": "image", "source": { "type": "file", "file_id": "f" } }),
            at("image"),
        ),
        (
            json!({ "type": "document", "source": base64 }),
            at("document"),
        ),
        (
            json!({ "type": "document", "source": { "type": "url", "url": "https://x" } }),
            at("document"),
        ),
        (
            json!({ "type": "document", "citations": { "enabled": true },
                "source": { "type": "text", "data": "D" } }),
            at("citations.enabled"),
        ),
        (json!({ "type": "document" }), at("source")),
        (
            json!({ "type": "document", "source": { "type": "text" } }),
            at("source.data"),
        ),
        (
            json!({ "type": "text", "text": "a", "citations": [{}] }),
            at("citations"),
        ),
        (json!({ "type": "text" }), at("text")),
        (
            json!({ "type": "search_result", "source": "x" }),
            at("title"),
        ),
        (json!({ "type": "server_tool_use", "id": "a" }), at("type")),
        (
            json!({ "type": "web_search_tool_result", "content": [] }),
            at("type"),
        ),
        (json!({ "type": "mcp_tool_use" }), at("type")),
        (json!({ "type": "container_upload" }), at("type")),
        (json!({ "type": "a block of next year" }), at("type")),
        (json!({ "type": 5 }), at("type")),
        (json!({ "text": "a" }), "messages.0.content.0".to_owned()),
        (
            json!({ "type": "tool_use", "id": "a", "name": "f", "input": {} }),
            at("type"),
        ),
        (json!({ "type": "tool_result" }), at("tool_use_id")),
        (
            json!({ "type": "tool_result", "tool_use_id": "a b" }),
            at("tool_use_id"),
        ),
    ] {
        gateway.refuses_message(&with_block(block), &path).await;
    }
    let called = |content: Value| {
        saying(json!([
            { "role": "user", "content": "a" },
            { "role": "assistant", "content": [tool_use("toolu_1", "f", json!({}))] },
            { "role": "user", "content": [tool_result("toolu_1", content)] },
        ]))
    };
    let image =
        called(json!([{ "type": "text", "text": "a" }, { "type": "image", "source": base64 }]));
    let path = "messages.2.content.0.tool_result.content.1.image";
    gateway.refuses_message(&image, path).await;
    let blocks = [
        (
            json!({ "type": "tool_use", "id": "a", "name": "f" }),
            "input",
        ),
        (
            json!({ "type": "tool_use", "id": "a", "name": "f", "input": [] }),
            "input",
        ),
        (
            json!({ "type": "tool_use", "id": "a", "input": {} }),
            "name",
        ),
        (
            json!({ "type": "tool_use", "name": "f", "input": {} }),
            "id",
        ),
        (
            json!({ "type": "tool_use", "id": "ü", "name": "f", "input": {} }),
            "id",
        ),
        (json!({ "type": "thinking", "thinking": "x" }), "signature"),
        (json!({ "type": "redacted_thinking" }), "data"),
        (tool_result("a", json!("x")), "type"),
    ];
    for (block, field) in blocks {
        let body = saying(json!([
            { "role": "assistant", "content": [block] }, { "role": "user", "content": "b" },
        ]));
        let path = format!("messages.0.content.0.{field}");
        gateway.refuses_message(&body, &path).await;
    }
}

#[tokio::test]
async fn thinking_is_dropped_and_a_turn_of_it_alone_goes() {
    let gateway = TestGateway::start().await;
    let thinking = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
    let redacted = json!({ "type": "redacted_thinking", "data": "x" });
    let sent = forwarded(
        &gateway,
        json!([
            { "role": "user", "content": "a" },
            { "role": "assistant", "content": [thinking, { "type": "text", "text": "b" }] },
            { "role": "user", "content": "c" },
            { "role": "assistant", "content": [redacted] },
            { "role": "user", "content": "d" },
        ]),
    )
    .await;
    assert_eq!(
        sent,
        json!([
            { "role": "user", "content": "a" }, { "role": "assistant", "content": "b" },
            { "role": "user", "content": "c" }, { "role": "user", "content": "d" },
        ])
    );
}

#[tokio::test]
async fn calls_and_results_become_those_of_a_chat() {
    let gateway = TestGateway::start().await;
    let sent = forwarded(
        &gateway,
        json!([
            { "role": "user", "content": "a" },
            { "role": "assistant", "content": [
                { "type": "text", "text": "I look." },
                tool_use("toolu_1", "f", json!({ "x": [1, "ü"] })), tool_use("other-2", "g", json!({})),
            ] },
            // The text and the system message wait for the results, which follow the calls directly.
            { "role": "user", "content": [{ "type": "text", "text": "early" }, tool_result("other-2", json!("two"))] },
            { "role": "system", "content": "note" },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "toolu_1", "is_error": true,
                  "content": [{ "type": "text", "text": "no" }, { "type": "text", "text": "way" }] },
                { "type": "text", "text": "go on" },
            ] },
        ]),
    )
    .await;
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    assert_eq!(
        sent,
        json!([
            { "role": "user", "content": "a" },
            { "role": "assistant", "content": "I look.", "tool_calls": [
                call("call_1", "f", r#"{"x":[1,"ü"]}"#), call("other-2", "g", "{}") ] },
            { "role": "tool", "content": "two", "tool_call_id": "other-2" },
            { "role": "tool", "content": "The tool failed:\nno\nway", "tool_call_id": "call_1" },
            { "role": "user", "content": "early" },
            { "role": "system", "content": "note" },
            { "role": "user", "content": "go on" },
        ])
    );
}

#[tokio::test]
async fn messages_of_the_assistant_in_a_row_are_one_turn() {
    let gateway = TestGateway::start().await;
    let sent = forwarded(
        &gateway,
        json!([
            { "role": "assistant", "content": [{ "type": "text", "text": "a" }, tool_use("toolu_1", "f", json!({}))] },
            { "role": "assistant", "content": [{ "type": "text", "text": "b" }, tool_use("toolu_2", "f", json!({}))] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "toolu_1" }, tool_result("toolu_2", json!([])) ] },
        ]),
    )
    .await;
    assert_eq!(sent.as_array().unwrap().len(), 3, "{sent}");
    assert_eq!(sent[0]["content"], "a\nb");
    assert_eq!(sent[0]["tool_calls"].as_array().unwrap().len(), 2);
    assert_eq!(
        sent[1],
        json!({ "role": "tool", "content": "", "tool_call_id": "call_1" })
    );
    assert_eq!(
        sent[2],
        json!({ "role": "tool", "content": "", "tool_call_id": "call_2" })
    );
}

#[tokio::test]
async fn each_call_needs_its_result_and_the_other_way_round() {
    let gateway = TestGateway::start().await;
    let calls = json!([
        tool_use("toolu_1", "f", json!({})),
        tool_use("toolu_2", "f", json!({}))
    ]);
    let turn = |results: Value| {
        saying(json!([
            { "role": "user", "content": "a" }, { "role": "assistant", "content": calls },
            { "role": "user", "content": results },
        ]))
    };
    let missing = "`tool_use` ids were found without `tool_result` blocks immediately after: ";
    let unexpected = "unexpected `tool_use_id` found in `tool_result` blocks: ";
    let none = turn(json!("b"));
    let message = gateway.refuses_message(&none, "messages.1").await;
    assert!(
        message.contains(&format!("{missing}toolu_1, toolu_2.")),
        "{message}"
    );
    let one = turn(json!([tool_result("toolu_1", json!("x"))]));
    let message = gateway.refuses_message(&one, "messages.1").await;
    assert!(message.contains(&format!("{missing}toolu_2.")), "{message}");
    let stranger = turn(json!([tool_result("toolu_3", json!("x"))]));
    let message = gateway
        .refuses_message(&stranger, "messages.2.content.0")
        .await;
    assert!(
        message.contains(&format!("{unexpected}toolu_3.")),
        "{message}"
    );
    let twice = tool_result("toolu_1", json!("x"));
    let twice = turn(json!([twice, twice]));
    gateway
        .refuses_message(&twice, "messages.2.content.1")
        .await;
    let ends = saying(json!([{ "role": "assistant", "content": calls }]));
    gateway.refuses_message(&ends, "messages.0").await;
    let equal = json!([
        tool_use("toolu_1", "f", json!({})),
        tool_use("toolu_1", "f", json!({}))
    ]);
    let equal = saying(json!([{ "role": "assistant", "content": equal }]));
    gateway
        .refuses_message(&equal, "messages.0.content.1.id")
        .await;
}
