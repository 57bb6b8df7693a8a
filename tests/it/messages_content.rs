//! §4.9: what has no effect in a conversation, and what is refused wherever it is.

use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    messages::{saying, tool, tool_result, tool_use, with_block, writing},
};

/// The value without `cache_control` at any depth.
fn stripped(value: &Value) -> Value {
    match value {
        Value::Array(all) => all.iter().map(stripped).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "cache_control");
            let kept = kept.map(|(name, value)| (name.clone(), stripped(value)));
            Value::Object(kept.collect())
        }
        other => other.clone(),
    }
}

/// The value with this `cache_control`.
fn cached(mut value: Value, control: &Value) -> Value {
    value["cache_control"] = control.clone();
    value
}

#[tokio::test]
async fn cache_control_has_no_effect_anywhere() {
    let gateway = TestGateway::start().await;
    for control in [
        json!({ "type": "ephemeral" }),
        json!({ "type": "ephemeral", "ttl": "5m" }),
        json!({ "type": "ephemeral", "ttl": "1h", "scope": "global" }),
        Value::Null,
    ] {
        let mark = |value: Value| cached(value, &control);
        let text = |text: &str| mark(json!({ "type": "text", "text": text }));
        let document = json!({ "type": "document", "source": { "type": "text", "data": "d" } });
        let search =
            json!({ "type": "search_result", "title": "t", "source": "s", "content": [text("f")] });
        let thinking = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
        let call = tool_use("toolu_1", "f", json!({}));
        let found = json!([text("r"), mark(document.clone())]);
        let body = mark(writing(json!({
            "system": [text("one"), text("two")],
            "tools": [mark(tool("f"))],
            "messages": [
                { "role": "user", "content": [text("a"), mark(document), mark(search)] },
                { "role": "assistant", "content": [mark(thinking), text("b"), mark(call)] },
                { "role": "user", "content": [mark(tool_result("toolu_1", found)), text("c")] },
                mark(json!({ "role": "system", "content": [text("note")] })),
            ],
        })));
        let sent = gateway.forwards_message(&body).await;
        assert!(!sent.to_string().contains("cache_control"), "{sent}");
        assert_eq!(sent, gateway.forwards_message(&stripped(&body)).await);
    }
}

#[tokio::test]
async fn messages_of_the_user_in_a_row_are_sent() {
    let gateway = TestGateway::start().await;
    let messages = json!([
        { "role": "user", "content": "a" },
        { "role": "user", "content": "b" },
        { "role": "assistant", "content": "c" },
        { "role": "assistant", "content": "d" },
        { "role": "user", "content": "e" },
    ]);
    let sent = gateway.forwards_message(&saying(messages)).await;
    let expected = json!([
        { "role": "user", "content": "a" },
        { "role": "user", "content": "b" },
        { "role": "assistant", "content": "c\nd" },
        { "role": "user", "content": "e" },
    ]);
    assert_eq!(sent["messages"], expected);
}

#[tokio::test]
async fn a_document_that_the_model_cannot_read_is_refused_with_its_path() {
    let gateway = TestGateway::start().await;
    let file = json!({ "type": "document", "source": { "type": "file", "file_id": "f" } });
    let pdf = json!({ "type": "document", "source": {
        "type": "base64", "media_type": "application/pdf", "data": "AAAA" } });
    let with_image = json!({ "type": "document", "source": { "type": "content", "content": [
        { "type": "image", "source": { "type": "url", "url": "https://x" } } ] } });
    let cited = json!({ "type": "search_result", "title": "t", "source": "s", "content": [],
        "citations": { "enabled": true } });
    for (block, tail) in [
        (file, "document"),
        (pdf, "document"),
        (with_image, "document"),
        (cited, "citations.enabled"),
    ] {
        let path = format!("messages.0.content.0.{tail}");
        gateway
            .refuses_message(&with_block(block.clone()), &path)
            .await;
        let text = json!({ "type": "text", "text": "a" });
        let found = saying(json!([
            { "role": "user", "content": "a" },
            { "role": "assistant", "content": [text, tool_use("toolu_1", "f", json!({}))] },
            { "role": "user", "content": [tool_result("toolu_1", json!([text, block]))] },
        ]));
        let path = format!("messages.2.content.0.tool_result.content.1.{tail}");
        gateway.refuses_message(&found, &path).await;
    }
}

#[tokio::test]
async fn a_block_of_a_tool_that_others_run_is_refused() {
    let gateway = TestGateway::start().await;
    for kind in [
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "container_upload",
        "compaction",
        "",
    ] {
        let block =
            json!({ "type": kind, "id": "srvtoolu_1", "name": "n", "input": {}, "content": [] });
        let path = "messages.0.content.0.type";
        gateway
            .refuses_message(&with_block(block.clone()), path)
            .await;
        let said = saying(json!([
            { "role": "user", "content": "a" },
            { "role": "assistant", "content": [{ "type": "text", "text": "b" }, block] },
            { "role": "user", "content": "c" },
        ]));
        let path = "messages.1.content.1.type";
        gateway.refuses_message(&said, path).await;
    }
}

#[tokio::test]
async fn a_system_message_has_texts_only() {
    let gateway = TestGateway::start().await;
    let call = tool_use("toolu_1", "f", json!({}));
    let image = json!({ "type": "image", "source": { "type": "url", "url": "https://x" } });
    for (content, path) in [
        (json!([call]), "messages.1.content.0.type"),
        (
            json!([{ "type": "text", "text": "a" }, image]),
            "messages.1.content.1.image",
        ),
        (json!([]), "messages.1.content"),
    ] {
        let body = saying(json!([
            { "role": "user", "content": "a" }, { "role": "system", "content": content },
        ]));
        gateway.refuses_message(&body, path).await;
    }
}

#[tokio::test]
async fn a_result_without_its_call_is_refused_wherever_it_is() {
    let gateway = TestGateway::start().await;
    let unexpected = "unexpected `tool_use_id` found in `tool_result` blocks: toolu_1";
    let result = tool_result("toolu_1", json!("x"));
    let first = with_block(result.clone());
    let message = gateway
        .refuses_message(&first, "messages.0.content.0")
        .await;
    assert!(message.contains(unexpected), "{message}");
    // Its call is in an earlier turn of the assistant, which has its result already.
    let late = saying(json!([
        { "role": "user", "content": "a" },
        { "role": "assistant", "content": [tool_use("toolu_1", "f", json!({}))] },
        { "role": "user", "content": [result] },
        { "role": "assistant", "content": "b" },
        { "role": "user", "content": [{ "type": "text", "text": "c" }, result] },
    ]));
    let message = gateway.refuses_message(&late, "messages.4.content.1").await;
    assert!(message.contains(unexpected), "{message}");
    // A call without a result before the assistant's next turn.
    let missing = saying(json!([
        { "role": "user", "content": "a" },
        { "role": "assistant", "content": [tool_use("toolu_1", "f", json!({}))] },
        { "role": "user", "content": "b" },
        { "role": "assistant", "content": "c" },
        { "role": "user", "content": [result] },
    ]));
    let message = gateway.refuses_message(&missing, "messages.1").await;
    let words = "`tool_use` ids were found without `tool_result` blocks immediately after: toolu_1";
    assert!(message.contains(words), "{message}");
}
