//! What holds for any conversation on its way to the API.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::sent;
use crate::upstream::{
    anthropic::request,
    testing::{arguments, call, text},
};

/// Something that was said, wherever it stands in a body.
#[derive(Clone, Debug, PartialEq)]
enum Said {
    Text(&'static str, String),
    Call(String, String, Value),
    Result(String, String),
}

/// A message or two of a caller's history.
#[derive(Clone, Debug)]
enum Round {
    User(String),
    Assistant(String),
    /// What was said beside the calls; their names and arguments; what the tools said.
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

/// The body of these rounds, and what is said in it; blank texts say nothing.
fn chat(rounds: &[Round]) -> (Value, Vec<Said>) {
    let mut messages = vec![json!({ "role": "user", "content": "first" })];
    let mut said = vec![Said::Text("user", "first".into())];
    for (at, round) in rounds.iter().enumerate() {
        match round {
            Round::User(text) => {
                messages.push(json!({ "role": "user", "content": text }));
                said.extend(told("user", text));
            }
            Round::Assistant(text) => {
                messages.push(json!({ "role": "assistant", "content": text }));
                said.extend(told("assistant", text));
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
                said.extend(told("assistant", beside));
                for (number, (name, arguments, _)) in calls.iter().enumerate() {
                    said.push(Said::Call(id(number), name.clone(), arguments.clone()));
                }
                // Results may come in any order.
                for (number, (_, _, result)) in calls.iter().enumerate().rev() {
                    let id = id(number);
                    messages.push(json!({ "role": "tool", "tool_call_id": id, "content": result }));
                    let blank = result.trim().is_empty();
                    let result = if blank { "" } else { result };
                    said.push(Said::Result(id, result.to_owned()));
                }
            }
        }
    }
    (
        json!({ "model": "svc-native-fast", "messages": messages }),
        said,
    )
}

fn told(role: &'static str, text: &str) -> Option<Said> {
    (!text.trim().is_empty()).then(|| Said::Text(role, text.to_owned()))
}

/// The way back: what is said in a body of the Messages API.
fn said_in(body: &Value) -> Vec<Said> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut said = Vec::new();
    for turn in body["messages"].as_array().unwrap() {
        let role = if turn["role"] == "user" {
            "user"
        } else {
            "assistant"
        };
        for block in turn["content"].as_array().unwrap() {
            said.push(match block["type"].as_str().unwrap() {
                "text" => Said::Text(role, word(&block["text"])),
                "tool_use" => {
                    let (id, name) = (word(&block["id"]), word(&block["name"]));
                    Said::Call(id, name, block["input"].clone())
                }
                "tool_result" => Said::Result(word(&block["tool_use_id"]), word(&block["content"])),
                other => panic!("no block of ours: {other}"),
            });
        }
    }
    said
}

/// The rules that the API refuses a conversation by.
fn assert_acceptable(body: &Value) {
    let turns = body["messages"].as_array().unwrap();
    for (at, turn) in turns.iter().enumerate() {
        let expected = if at % 2 == 0 { "user" } else { "assistant" };
        assert_eq!(turn["role"], expected, "turns alternate, the user's first");
        let blocks = turn["content"].as_array().unwrap();
        assert!(!blocks.is_empty(), "a turn says something");
        let is_result = |block: &Value| block["type"] == "tool_result";
        let results = blocks.iter().filter(|block| is_result(block)).count();
        assert!(blocks[..results].iter().all(is_result), "results first");
        let called = at.checked_sub(1).map_or(0, |before| {
            let before = turns[before]["content"].as_array().unwrap();
            let calls = before.iter().filter(|block| block["type"] == "tool_use");
            calls.count()
        });
        assert_eq!(results, called, "each call is answered in the next turn");
    }
}

proptest! {
    /// Every text, call and result arrives, in its order, under its name, and is acceptable.
    #[test]
    fn nothing_that_was_said_is_lost(rounds in prop::collection::vec(round(), 0..8)) {
        let (body, said) = chat(&rounds);
        let sent = sent(body.to_string().as_bytes());
        prop_assert_eq!(said_in(&sent), said);
        assert_acceptable(&sent);
    }
}

/// Numbers that a float cannot hold reach the tool's history as they were written.
#[test]
fn arguments_are_not_rewritten() {
    let arguments = r#"{"wei": 12345678901234567890123, "rate": 1.10}"#;
    let asked = json!({ "id": "c", "function": { "name": "f", "arguments": arguments } });
    let body = json!({ "model": "svc-native-fast", "messages": [
        { "role": "user", "content": "Go" },
        { "role": "assistant", "tool_calls": [asked] },
        { "role": "tool", "tool_call_id": "c", "content": "done" },
    ] });
    let call = call(body.to_string().as_bytes());
    let written = request::write(&call, "m", false);
    assert!(String::from_utf8(written).unwrap().contains(arguments));
}
