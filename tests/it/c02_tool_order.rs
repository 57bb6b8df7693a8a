//! §2.2, rules 3 and 4: each tool message answers a call, and each call is answered before the conversation
//! continues.

use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    bodies::hello_with,
    models::{MODELS, has_identity_prompt},
};

const MODEL: &str = "svc-native-fast";

fn user() -> Value {
    json!({ "role": "user", "content": "Hello" })
}

fn calls(ids: &[&str]) -> Value {
    let call = |id: &&str| json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let calls: Vec<_> = ids.iter().map(call).collect();
    json!({ "role": "assistant", "content": null, "tool_calls": calls })
}

fn answer(id: &str) -> Value {
    json!({ "role": "tool", "content": format!("answer to {id}"), "tool_call_id": id })
}

fn says(content: &str) -> Value {
    json!({ "role": "assistant", "content": content })
}

fn talk(messages: &[Value]) -> Value {
    hello_with(
        MODEL,
        json!({ "messages": messages, "tool_execution": "passthrough" }),
    )
}

#[tokio::test]
async fn calls_are_answered_in_any_order_and_on_any_turn() {
    let gateway = TestGateway::start().await;
    for messages in [
        vec![user(), calls(&["a"]), answer("a")],
        vec![
            user(),
            calls(&["a", "b", "c"]),
            answer("c"),
            answer("a"),
            answer("b"),
        ],
        vec![
            user(),
            calls(&["a"]),
            answer("a"),
            calls(&["b"]),
            answer("b"),
        ],
        // Some providers number their calls from zero on every turn.
        vec![
            user(),
            calls(&["call_0"]),
            answer("call_0"),
            says("Done."),
            user(),
            calls(&["call_0"]),
            answer("call_0"),
        ],
        vec![calls(&["a"]), answer("a"), user()],
    ] {
        let sent = gateway.forwards(&talk(&messages)).await;
        assert_eq!(sent["messages"], json!(messages));
    }
}

#[tokio::test]
async fn a_call_without_an_answer_is_refused() {
    let gateway = TestGateway::start().await;
    for (messages, at) in [
        (vec![user(), calls(&["a"])], 1),
        (vec![user(), calls(&["a"]), user()], 1),
        (vec![user(), calls(&["a"]), says("Never mind.")], 1),
        (vec![user(), calls(&["a", "b"]), answer("a")], 1),
        (vec![user(), calls(&["a", "b"]), answer("b"), user()], 1),
        (vec![user(), calls(&["a"]), calls(&["b"]), answer("b")], 1),
        (
            vec![user(), calls(&["a"]), answer("a"), user(), calls(&["b"])],
            4,
        ),
    ] {
        let param = format!("messages[{at}].tool_calls");
        gateway.refuses(&talk(&messages), &param).await;
    }
}

#[tokio::test]
async fn an_answer_without_its_call_is_refused() {
    let gateway = TestGateway::start().await;
    for (messages, at) in [
        (vec![answer("a")], 0),
        (vec![user(), answer("a")], 1),
        (vec![user(), says("Hi"), answer("a")], 2),
        (vec![user(), calls(&["a"]), answer("b")], 2),
        (vec![user(), calls(&["a"]), answer("A")], 2),
        (vec![user(), calls(&["a"]), answer("")], 2),
        // Answered twice.
        (vec![user(), calls(&["a"]), answer("a"), answer("a")], 3),
        (
            vec![
                user(),
                calls(&["a", "b"]),
                answer("a"),
                answer("a"),
                answer("b"),
            ],
            3,
        ),
        // A call with this ID exists, but not in the message before.
        (
            vec![user(), calls(&["a"]), answer("a"), user(), answer("a")],
            4,
        ),
        (
            vec![
                user(),
                calls(&["a"]),
                answer("a"),
                calls(&["b"]),
                answer("a"),
            ],
            4,
        ),
    ] {
        let param = format!("messages[{at}].tool_call_id");
        gateway.refuses(&talk(&messages), &param).await;
    }
}

#[tokio::test]
async fn an_answer_that_does_not_directly_follow_is_refused() {
    let gateway = TestGateway::start().await;
    let system = json!({ "role": "system", "content": "Hurry." });
    for between in [user(), says("Wait."), system] {
        let messages = [user(), calls(&["a"]), between, answer("a")];
        gateway
            .refuses(&talk(&messages), "messages[1].tool_calls")
            .await;
    }
}

/// Message indexes in errors count from the caller's first message, whatever the gateway inserted before it.
#[tokio::test]
async fn the_rules_hold_on_every_model() {
    let gateway = TestGateway::start().await;
    for model in MODELS {
        let mut body = talk(&[user(), calls(&["a"]), answer("b")]);
        body["model"] = model.into();
        gateway.refuses(&body, "messages[2].tool_call_id").await;
        body["messages"][2] = answer("a");
        let sent = gateway.forwards(&body).await;
        let first = usize::from(has_identity_prompt(model));
        assert_eq!(sent["messages"][first + 2], answer("a"), "{model}");
    }
}

#[tokio::test]
async fn a_call_has_the_shape_of_a_call() {
    let gateway = TestGateway::start().await;
    let good =
        json!({ "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let with = |pointer: &str, value: Value| {
        let mut call = good.clone();
        *call.pointer_mut(pointer).unwrap() = value;
        json!({ "role": "assistant", "content": null, "tool_calls": [call] })
    };
    let call = "messages[1].tool_calls[0]";
    for (message, param) in [
        (
            with("/function/arguments", json!({ "a": 1 })),
            format!("{call}.function.arguments"),
        ),
        (
            with("/function/arguments", json!(null)),
            format!("{call}.function.arguments"),
        ),
        (
            with("/function/name", json!(5)),
            format!("{call}.function.name"),
        ),
        (with("/id", json!(5)), format!("{call}.id")),
        (with("/function", json!("f")), format!("{call}.function")),
        (
            json!({ "role": "assistant", "tool_calls": { "0": good } }),
            "messages[1].tool_calls".to_owned(),
        ),
    ] {
        gateway
            .refuses(&talk(&[user(), message, answer("a")]), &param)
            .await;
    }
    for kind in [json!("custom"), json!("web_search")] {
        let body = talk(&[user(), with("/type", kind), answer("a")]);
        gateway.refuses(&body, call).await;
    }
}

/// §2.2: `tool_call_id` belongs to tool messages only.
#[tokio::test]
async fn a_tool_call_id_on_another_message_is_ignored() {
    let gateway = TestGateway::start().await;
    let stray = json!({ "role": "user", "content": "Hello", "tool_call_id": "a" });
    let sent = gateway.forwards(&talk(&[stray])).await;
    assert_eq!(sent["messages"], json!([user()]));
}
