//! Properties of every conversation and every stream.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{answer, frames, request};
use crate::upstream::{
    gemini::call_cache::CallCache,
    testing::{self, assembled, flattened, with_numbered_ids},
};

/// A text of the user or the model, a call with its arguments, or a function's result.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    User(String),
    Model(String),
    Call(String, Value),
    Result(String, String),
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{1,12}",
        "[ -~]{1,12}",
        Just("\"\\\n\u{0}😀".to_owned())
    ]
}

fn arguments() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-z]{1,4}", scalar(), 0..4)
        .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>()))
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        text().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
        Just(json!([1, { "deep": [] }])),
    ]
}

/// A message of the user, or one of the model with calls and their results.
#[derive(Clone, Debug)]
enum Turn {
    User(String),
    Model {
        text: Option<String>,
        calls: Vec<(String, Value, String)>,
        /// How far the results are rotated, so that their order differs from that of the calls.
        rotated: usize,
    },
}

fn turn() -> impl Strategy<Value = Turn> {
    let calls = prop::collection::vec(("[a-z_]{1,8}", arguments(), text()), 0..4);
    prop_oneof![
        text().prop_map(Turn::User),
        (text(), any::<bool>(), calls, 0..4_usize).prop_map(|(text, silent, calls, rotated)| {
            let text = (!silent || calls.is_empty()).then_some(text);
            Turn::Model {
                text,
                calls,
                rotated,
            }
        }),
    ]
}

/// The turns as a chat, and its items.
fn chat(turns: &[Turn]) -> (Value, Vec<Item>) {
    // Gemini requires the user first.
    let mut messages = vec![json!({ "role": "user", "content": "first" })];
    let mut items = vec![Item::User("first".into())];
    for (number, turn) in turns.iter().enumerate() {
        match turn {
            Turn::User(text) => {
                messages.push(json!({ "role": "user", "content": text }));
                items.push(Item::User(text.clone()));
            }
            Turn::Model {
                text,
                calls,
                rotated,
            } => {
                items.extend(text.clone().map(Item::Model));
                let id = |at: usize| format!("call_{number}_{at}");
                let written: Vec<_> = (0..)
                    .zip(calls)
                    .map(|(at, (name, arguments, _))| {
                        json!({ "id": id(at), "type": "function",
                            "function": { "name": name, "arguments": arguments.to_string() } })
                    })
                    .collect();
                let mut message = json!({ "role": "assistant", "content": text });
                if !written.is_empty() {
                    message["tool_calls"] = written.into();
                }
                messages.push(message);
                let mut results: Vec<_> = (0..)
                    .zip(calls)
                    .map(|(at, (_, _, result))| {
                        json!({ "role": "tool", "tool_call_id": id(at), "content": result })
                    })
                    .collect();
                results.rotate_left(rotated % calls.len().max(1));
                messages.extend(results);
                let calls_made = calls.iter().cloned();
                items.extend(calls_made.map(|(name, arguments, _)| Item::Call(name, arguments)));
                let results = calls.iter().cloned();
                items.extend(results.map(|(name, _, result)| Item::Result(name, result)));
            }
        }
    }
    let chat = json!({ "model": "svc-native-fast", "messages": messages });
    (chat, items)
}

/// The items in a request's `contents`.
fn items_in(contents: &Value) -> Vec<Item> {
    let mut items = Vec::new();
    for content in contents.as_array().unwrap() {
        for part in content["parts"].as_array().unwrap() {
            let owned = |value: &Value| value.as_str().unwrap().to_owned();
            let role = content["role"].as_str().unwrap();
            items.push(if let Some(text) = part.get("text") {
                match role {
                    "user" => Item::User(owned(text)),
                    _ => Item::Model(owned(text)),
                }
            } else if let Some(call) = part.get("functionCall") {
                assert_eq!(role, "model");
                Item::Call(owned(&call["name"]), call["args"].clone())
            } else {
                assert_eq!(role, "user");
                let result = &part["functionResponse"];
                let text = match result["response"].get("result") {
                    Some(text) => owned(text),
                    None => result["response"].to_string(),
                };
                Item::Result(owned(&result["name"]), text)
            });
        }
    }
    items
}

/// Parts of a response: texts, thoughts and calls, in any order.
fn pieces() -> impl Strategy<Value = Vec<Value>> {
    let piece = prop_oneof![
        text().prop_map(|text| json!({ "text": text })),
        text().prop_map(|text| json!({ "text": text, "thought": true })),
        ("[a-z_]{1,8}", arguments())
            .prop_map(|(name, args)| json!({ "functionCall": { "name": name, "args": args } })),
    ];
    prop::collection::vec(piece, 0..6)
}

fn finish() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["STOP", "MAX_TOKENS", "SAFETY", "OTHER"])
}

fn candidate(parts: &[Value], finish: Option<&str>) -> Value {
    let mut candidate = json!({ "content": { "parts": parts, "role": "model" } });
    if let Some(finish) = finish {
        candidate["finishReason"] = finish.into();
    }
    let usage = json!({ "promptTokenCount": 5, "candidatesTokenCount": 4, "totalTokenCount": 9 });
    json!({ "candidates": [candidate], "usageMetadata": usage })
}

/// The parts as a stream, with `an_event` of them in each event.
fn stream(pieces: &[Value], finish: &str, an_event: usize) -> String {
    let mut events: Vec<_> = pieces
        .chunks(an_event)
        .map(|pieces| candidate(pieces, None))
        .collect();
    events.push(candidate(&[], Some(finish)));
    let events = events.iter().map(|event| format!("data: {event}\r\n\r\n"));
    events.collect()
}

proptest! {
    /// Every text, call and result is sent in order, results in the order of their calls.
    #[test]
    fn every_item_is_sent(turns in prop::collection::vec(turn(), 0..6)) {
        let (chat, items) = chat(&turns);
        let body = request(&chat, "gemini-3-flash", &CallCache::default());
        prop_assert_eq!(items_in(&body["contents"]), items);
    }

    /// No content is empty, and roles alternate, except after results, which have a content of their own.
    #[test]
    fn roles_alternate(turns in prop::collection::vec(turn(), 0..6)) {
        let body = request(&chat(&turns).0, "gemini-3-flash", &CallCache::default());
        let contents = body["contents"].as_array().unwrap();
        let is_result = |content: &Value| content["parts"][0].get("functionResponse").is_some();
        for pair in contents.windows(2) {
            let same = pair[0]["role"] == pair[1]["role"];
            prop_assert!(!same || is_result(&pair[0]), "{:?}", pair);
        }
        for content in contents {
            let parts = content["parts"].as_array().unwrap();
            prop_assert!(!parts.is_empty());
            let results = parts.iter().filter(|part| part.get("functionResponse").is_some());
            prop_assert!([0, parts.len()].contains(&results.count()), "{:?}", content);
        }
    }

    /// The frames do not depend on how the bytes of a stream are split.
    #[test]
    fn a_stream_may_be_split_anywhere(
        pieces in pieces(),
        finish in finish(),
        an_event in 1..4_usize,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let stream = stream(&pieces, finish, an_event);
        let pieces = testing::pieces(stream.as_bytes(), &cuts);
        let shown = |(frames, failure): (Vec<String>, _)| (with_numbered_ids(&frames.concat()), failure);
        let whole = shown(frames(&[stream.as_bytes()], 1));
        prop_assert_eq!(shown(frames(&pieces, 1)), whole);
    }

    /// A streamed and a whole response with the same parts are equal for the caller.
    #[test]
    fn a_stream_equals_the_whole_response(
        pieces in pieces(),
        finish in finish(),
        an_event in 1..4_usize,
    ) {
        let whole = candidate(&pieces, Some(finish)).to_string();
        let whole = answer(whole.as_bytes(), 1);
        let (frames, failure) = frames(&[stream(&pieces, finish, an_event).as_bytes()], 1);
        match whole {
            Ok(whole) => {
                prop_assert_eq!(failure, None);
                prop_assert_eq!(assembled(&frames), flattened(&whole));
            }
            Err(why) => prop_assert_eq!(failure, Some(why)),
        }
    }

    /// A stream that ends before its finish reason is a failure, wherever it was cut.
    #[test]
    fn a_stream_without_a_finish_reason_is_a_failure(pieces in pieces(), an_event in 1..4_usize) {
        let stream = stream(&pieces, "STOP", an_event);
        let events: Vec<_> = stream.split_inclusive("\r\n\r\n").collect();
        for kept in 0..events.len() {
            let (_, failure) = frames(&[events[..kept].concat().as_bytes()], 1);
            prop_assert!(failure.is_some());
        }
    }
}
