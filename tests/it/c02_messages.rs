//! §2.2 and §2.3: roles, content and the single system prompt.

use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    gateway::UPSTREAM_MODEL,
    models::{MODELS, has_identity_prompt},
};

/// A model that gets messages unchanged.
const NATIVE: &str = "svc-native-fast";

/// These messages for this model; the gateway adds no tools.
fn talk(model: &str, messages: &Value) -> Value {
    json!({ "model": model, "messages": messages, "tool_execution": "passthrough" })
}

async fn forwarded(gateway: &TestGateway, messages: Value) -> Value {
    gateway.forwards(&talk(NATIVE, &messages)).await["messages"].clone()
}

fn user(content: &str) -> Value {
    json!({ "role": "user", "content": content })
}

fn system(content: &str) -> Value {
    json!({ "role": "system", "content": content })
}

#[tokio::test]
async fn each_role_is_forwarded() {
    let gateway = TestGateway::start().await;
    let messages = json!([
        system("Be brief."),
        user("Hello"),
        { "role": "assistant", "content": "Hi" },
        user("What time is it?"),
        { "role": "assistant", "content": "Let me look.", "tool_calls": [
            { "id": "c1", "type": "function", "function": { "name": "f", "arguments": "{\"a\": 1}" } },
        ] },
        { "role": "tool", "tool_call_id": "c1", "content": "noon" },
    ]);
    assert_eq!(forwarded(&gateway, messages.clone()).await, messages);
}

#[tokio::test]
async fn fields_that_a_role_needs_are_required() {
    let gateway = TestGateway::start().await;
    let calls = json!([{ "id": "c", "function": { "name": "f", "arguments": "{}" } }]);
    for (message, field) in [
        (json!({ "role": "system" }), "content"),
        (json!({ "role": "system", "content": null }), "content"),
        (json!({ "role": "developer" }), "content"),
        (json!({ "role": "user" }), "content"),
        (json!({ "role": "user", "content": null }), "content"),
        (json!({ "role": "assistant" }), "content"),
        (json!({ "role": "assistant", "content": null }), "content"),
        (
            json!({ "role": "assistant", "content": null, "tool_calls": [] }),
            "content",
        ),
        (
            json!({ "role": "assistant", "content": null, "tool_calls": null }),
            "content",
        ),
        (json!({ "role": "tool", "tool_call_id": "c" }), "content"),
        (
            json!({ "role": "tool", "tool_call_id": "c", "content": null }),
            "content",
        ),
        (json!({ "role": "tool", "content": "1" }), "tool_call_id"),
        (
            json!({ "role": "tool", "content": "1", "tool_call_id": null }),
            "tool_call_id",
        ),
        (
            json!({ "role": "user", "content": "1", "tool_calls": calls }),
            "tool_calls",
        ),
        (
            json!({ "role": "system", "content": "1", "tool_calls": calls }),
            "tool_calls",
        ),
    ] {
        let body = talk(NATIVE, &json!([user("Hello"), message]));
        gateway
            .refuses(&body, &format!("messages[1].{field}"))
            .await;
    }
}

#[tokio::test]
async fn an_unknown_role_is_refused() {
    let gateway = TestGateway::start().await;
    for role in [
        json!("function"),
        json!("robot"),
        json!("User"),
        json!(""),
        json!(null),
        json!(1),
    ] {
        let message = json!({ "role": role, "content": "x", "name": "f" });
        let body = talk(NATIVE, &json!([user("Hello"), user("again"), message]));
        gateway.refuses(&body, "messages[2].role").await;
    }
    let body = talk(NATIVE, &json!([{ "content": "no role" }]));
    gateway.refuses(&body, "messages[0]").await;
}

#[tokio::test]
async fn a_developer_message_becomes_a_system_message() {
    let gateway = TestGateway::start().await;
    let sent = forwarded(
        &gateway,
        json!([{ "role": "developer", "content": "Be brief." }, user("Hello")]),
    )
    .await;
    assert_eq!(sent, json!([system("Be brief."), user("Hello")]));
}

#[tokio::test]
async fn several_system_messages_become_one_at_the_top() {
    let gateway = TestGateway::start().await;
    let developer = json!({ "role": "developer", "content": [{ "type": "text", "text": "two" }] });
    for (written, merged) in [
        (
            json!([system("one"), developer, user("Hello")]),
            json!([system("one\ntwo"), user("Hello")]),
        ),
        (
            json!([system("one"), user("Hello"), developer]),
            json!([system("one\ntwo"), user("Hello")]),
        ),
        // A late system message is moved to the top.
        (
            json!([user("Hello"), { "role": "assistant", "content": "Hi" }, system("late"), user("Bye")]),
            json!([system("late"), user("Hello"), { "role": "assistant", "content": "Hi" }, user("Bye")]),
        ),
        (
            json!([user("Hello"), system("a \"quote\"\n\u{0}😀"), system("b")]),
            json!([system("a \"quote\"\n\u{0}😀\nb"), user("Hello")]),
        ),
        // A system message at the top stays unchanged.
        (
            json!([system("one"), user("Hello")]),
            json!([system("one"), user("Hello")]),
        ),
        (json!([user("Hello")]), json!([user("Hello")])),
    ] {
        assert_eq!(
            forwarded(&gateway, written.clone()).await,
            merged,
            "{written}"
        );
    }
}

#[tokio::test]
async fn the_identity_prompt_goes_before_the_callers_where_there_is_one() {
    let gateway = TestGateway::start().await;
    for model in MODELS {
        let plain = gateway
            .forwards(&talk(model, &json!([user("Hello")])))
            .await;
        let own = talk(
            model,
            &json!([system("Own rules."), user("Hello"), system("More.")]),
        );
        let with_own = gateway.forwards(&own).await;
        if !has_identity_prompt(model) {
            assert_eq!(plain["messages"], json!([user("Hello")]), "{model}");
            let merged = json!([system("Own rules.\nMore."), user("Hello")]);
            assert_eq!(with_own["messages"], merged, "{model}");
            continue;
        }
        let messages = plain["messages"].as_array().unwrap();
        assert_eq!(messages.len(), 2, "{model}");
        assert_eq!(messages[0]["role"], "system", "{model}");
        let identity = messages[0]["content"].as_str().unwrap();
        assert!(!identity.trim().is_empty() && !identity.contains(['{', '}']));
        assert!(!identity.contains(UPSTREAM_MODEL), "{model}: {identity}");
        let merged = system(&format!("{identity}\nOwn rules.\nMore."));
        assert_eq!(with_own["messages"], json!([merged, user("Hello")]));
    }
}

#[tokio::test]
async fn parts_are_flattened_to_one_string() {
    let gateway = TestGateway::start().await;
    let image = json!({ "type": "image_url", "image_url": { "url": "http://example.com/a.png" } });
    for (parts, flat) in [
        (json!([{ "type": "text", "text": "a" }]), "a"),
        (
            json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }]),
            "a\nb",
        ),
        (
            json!([image, { "type": "text", "text": "a" }, image, { "type": "text", "text": "b" }]),
            "a\nb",
        ),
        (
            json!([{ "type": "text" }, { "type": "text", "text": "a" }]),
            "a",
        ),
        (
            json!([{ "type": "text", "text": null }, { "type": "text", "text": "a" }]),
            "a",
        ),
        (
            json!([{ "type": "text", "text": "" }, { "type": "text", "text": "a" }]),
            "\na",
        ),
        (
            json!([{ "type": "input_audio", "input_audio": { "data": "AA==" } },
                   { "type": "file", "file": { "file_id": "x" } },
                   { "type": "text", "text": "\"ü\"\n\u{0}\\" }]),
            "\"ü\"\n\u{0}\\",
        ),
        (json!([image]), ""),
        (json!([]), ""),
    ] {
        let sent = forwarded(&gateway, json!([{ "role": "user", "content": parts }])).await;
        assert_eq!(sent, json!([user(flat)]), "{parts}");
        assert!(!gateway.upstream.last_text().contains("example.com"));
    }
}

#[tokio::test]
async fn parts_are_flattened_in_every_role() {
    let gateway = TestGateway::start().await;
    let parts = |a: &str| json!([{ "type": "text", "text": a }, { "type": "text", "text": "z" }]);
    let call =
        json!({ "id": "c1", "type": "function", "function": { "name": "f", "arguments": "" } });
    let sent = forwarded(
        &gateway,
        json!([
            { "role": "system", "content": parts("s") },
            { "role": "user", "content": parts("u") },
            { "role": "assistant", "content": parts("a"), "tool_calls": [call] },
            { "role": "tool", "content": parts("t"), "tool_call_id": "c1" },
        ]),
    )
    .await;
    let contents: Vec<_> = sent
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["content"])
        .collect();
    assert_eq!(contents, ["s\nz", "u\nz", "a\nz", "t\nz"]);
}

#[tokio::test]
async fn content_is_a_string_or_parts_of_text() {
    let gateway = TestGateway::start().await;
    for content in [
        json!(5),
        json!(true),
        json!({ "type": "text", "text": "x" }),
        json!(["x"]),
        json!([null]),
        json!([[{ "type": "text", "text": "x" }]]),
        json!([{ "type": "text", "text": 5 }]),
        json!([{ "type": "text", "text": { "value": "x" } }]),
    ] {
        let body = talk(
            NATIVE,
            &json!([user("Hello"), { "role": "user", "content": content }]),
        );
        gateway.refuses(&body, "messages[1].content").await;
    }
}

/// §2.2: content may be null beside tool calls; clients also omit it or send an empty string.
#[tokio::test]
async fn an_assistant_that_only_calls_needs_no_content() {
    let gateway = TestGateway::start().await;
    let call =
        json!({ "id": "c1", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let answer = json!({ "role": "tool", "tool_call_id": "c1", "content": "" });
    for message in [
        json!({ "role": "assistant", "tool_calls": [call] }),
        json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
        json!({ "role": "assistant", "content": "", "tool_calls": [call] }),
        json!({ "role": "assistant", "content": [], "tool_calls": [call] }),
    ] {
        let sent = forwarded(&gateway, json!([user("Hello"), message, answer])).await;
        let content = &sent[1]["content"];
        assert!(content.is_null() || content == "", "{message}: {content}");
        assert_eq!(sent[1]["tool_calls"], json!([call]), "{message}");
        assert_eq!(sent[2], answer, "{message}");
    }
}

/// Fields that official clients copy from a response into the next request.
#[tokio::test]
async fn response_fields_in_messages_are_ignored() {
    let gateway = TestGateway::start().await;
    let message = json!({
        "role": "assistant", "content": "Hi", "refusal": null, "annotations": [], "audio": null,
        "function_call": null, "tool_calls": null, "reasoning_content": "hm", "parsed": { "a": 1 },
        "tool_call_id": null, "name": null,
    });
    let sent = forwarded(&gateway, json!([user("Hello"), message, user("Bye")])).await;
    let kept = json!({ "role": "assistant", "content": "Hi" });
    assert_eq!(sent, json!([user("Hello"), kept, user("Bye")]));
}

#[tokio::test]
async fn a_name_is_forwarded_unchanged() {
    let gateway = TestGateway::start().await;
    let named = json!([{ "role": "user", "content": "Hello", "name": "Zoë \u{0}\"/" }]);
    assert_eq!(forwarded(&gateway, named.clone()).await, named);
    let body = talk(
        NATIVE,
        &json!([{ "role": "user", "content": "Hello", "name": 5 }]),
    );
    gateway.refuses(&body, "messages[0].name").await;
}

#[tokio::test]
async fn an_empty_list_of_messages_is_refused() {
    let gateway = TestGateway::start().await;
    gateway.refuses(&talk(NATIVE, &json!([])), "messages").await;
    gateway
        .refuses(&talk(NATIVE, &json!(null)), "messages")
        .await;
    gateway
        .refuses(&json!({ "model": NATIVE }), "messages")
        .await;
    gateway
        .refuses(&talk(NATIVE, &json!([user("Hello"), "Hi"])), "messages[1]")
        .await;
}
