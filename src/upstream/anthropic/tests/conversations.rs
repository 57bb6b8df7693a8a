//! Properties of any conversation that is sent to the API.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::upstream_body;
use crate::{
    upstream::{
        anthropic::request,
        testing::{arguments, call, text},
    },
    wire::messages::Naming,
};

/// A text, call or result, in a chat or in a body of the Messages API.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    Text(&'static str, String),
    Call(String, String, Value),
    Result(String, String),
}

/// One or more messages of a caller's history.
#[derive(Clone, Debug)]
enum Round {
    User(String),
    Assistant(String),
    /// Text beside the calls; then name, arguments and result of each call.
    Calls(String, Vec<(String, Value, String)>),
}

fn round() -> impl Strategy<Value = Round> {
    let calls = prop::collection::vec(("[a-z_]{1,8}", arguments(), text()), 1..4);
    prop_oneof![
        text().prop_map(Round::User),
        text().prop_map(Round::Assistant),
        (text(), calls).prop_map(|(beside, calls)| Round::Calls(beside, calls)),
    ]
}

/// The chat body of these rounds, and its items; blank texts are not among them.
fn chat(rounds: &[Round]) -> (Value, Vec<Item>) {
    let mut messages = vec![json!({ "role": "user", "content": "first" })];
    let mut items = vec![Item::Text("user", "first".into())];
    for (at, round) in rounds.iter().enumerate() {
        match round {
            Round::User(text) => {
                messages.push(json!({ "role": "user", "content": text }));
                items.extend(text_item("user", text));
            }
            Round::Assistant(text) => {
                messages.push(json!({ "role": "assistant", "content": text }));
                items.extend(text_item("assistant", text));
            }
            Round::Calls(beside, calls) => {
                let id = |number: usize| format!("call_{at}-{number}");
                let tool_calls = calls
                    .iter()
                    .enumerate()
                    .map(|(number, (name, arguments, _))| {
                        json!({ "id": id(number), "type": "function",
                        "function": { "name": name, "arguments": arguments.to_string() } })
                    });
                let tool_calls: Vec<_> = tool_calls.collect();
                messages.push(
                    json!({ "role": "assistant", "content": beside, "tool_calls": tool_calls }),
                );
                items.extend(text_item("assistant", beside));
                for (number, (name, arguments, _)) in calls.iter().enumerate() {
                    items.push(Item::Call(id(number), name.clone(), arguments.clone()));
                }
                // Results need not be in the order of the calls.
                for (number, (_, _, result)) in calls.iter().enumerate().rev() {
                    let id = id(number);
                    messages.push(json!({ "role": "tool", "tool_call_id": id, "content": result }));
                    let blank = result.trim().is_empty();
                    let result = if blank { "" } else { result };
                    items.push(Item::Result(id, result.to_owned()));
                }
            }
        }
    }
    (
        json!({ "model": "svc-native-fast", "messages": messages }),
        items,
    )
}

fn text_item(role: &'static str, text: &str) -> Option<Item> {
    (!text.trim().is_empty()).then(|| Item::Text(role, text.to_owned()))
}

/// The items in a body of the Messages API.
fn items_in(body: &Value) -> Vec<Item> {
    let owned = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut items = Vec::new();
    for turn in body["messages"].as_array().unwrap() {
        let role = if turn["role"] == "user" {
            "user"
        } else {
            "assistant"
        };
        for block in turn["content"].as_array().unwrap() {
            items.push(match block["type"].as_str().unwrap() {
                "text" => Item::Text(role, owned(&block["text"])),
                "tool_use" => {
                    let (id, name) = (owned(&block["id"]), owned(&block["name"]));
                    Item::Call(id, name, block["input"].clone())
                }
                "tool_result" => {
                    Item::Result(owned(&block["tool_use_id"]), owned(&block["content"]))
                }
                other => panic!("no block of ours: {other}"),
            });
        }
    }
    items
}

/// Checks the rules by which the API accepts a conversation.
fn assert_acceptable(body: &Value) {
    let turns = body["messages"].as_array().unwrap();
    for (at, turn) in turns.iter().enumerate() {
        let expected = if at % 2 == 0 { "user" } else { "assistant" };
        assert_eq!(turn["role"], expected, "turns alternate, the user's first");
        let blocks = turn["content"].as_array().unwrap();
        assert!(!blocks.is_empty(), "no turn is empty");
        let is_result = |block: &Value| block["type"] == "tool_result";
        let results = blocks.iter().filter(|block| is_result(block)).count();
        assert!(blocks[..results].iter().all(is_result), "results first");
        let called = at.checked_sub(1).map_or(0, |before| {
            let before = turns[before]["content"].as_array().unwrap();
            let calls = before.iter().filter(|block| block["type"] == "tool_use");
            calls.count()
        });
        assert_eq!(results, called, "each call has a result in the next turn");
    }
}

proptest! {
    /// Every text, call and result is sent in order and with its role, and the API accepts the conversation.
    #[test]
    fn every_item_is_sent(rounds in prop::collection::vec(round(), 0..8)) {
        let (body, items) = chat(&rounds);
        let sent = upstream_body(body.to_string().as_bytes());
        prop_assert_eq!(items_in(&sent), items);
        assert_acceptable(&sent);
    }
}

/// Numbers in arguments keep their digits, also those that a float cannot represent.
#[test]
fn arguments_are_not_rewritten() {
    let arguments = r#"{"wei": 12345678901234567890123, "rate": 1.10}"#;
    let tool_call = json!({ "id": "c", "function": { "name": "f", "arguments": arguments } });
    let body = json!({ "model": "svc-native-fast", "messages": [
        { "role": "user", "content": "Go" },
        { "role": "assistant", "tool_calls": [tool_call] },
        { "role": "tool", "tool_call_id": "c", "content": "done" },
    ] });
    let call = call(body.to_string().as_bytes());
    let written = request::write(&call, Naming::Model("m"), false);
    assert!(String::from_utf8(written).unwrap().contains(arguments));
}
