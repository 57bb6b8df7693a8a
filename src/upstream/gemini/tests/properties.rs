//! What holds for every conversation and every stream.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{answer, frames, request};
use crate::upstream::{
    gemini::calls::Calls,
    testing::{self, assembled, flattened, numbered},
};

/// Something said: by whom, in which words, or which function with which arguments.
#[derive(Clone, Debug, PartialEq)]
enum Said {
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

/// A turn: what the user said, or what the model said with calls and their results.
#[derive(Clone, Debug)]
enum Turn {
    User(String),
    Model {
        text: Option<String>,
        calls: Vec<(String, Value, String)>,
        /// Where the results begin, so that their order differs from that of the calls.
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

/// The turns as a chat, and everything that is said in them.
fn chat(turns: &[Turn]) -> (Value, Vec<Said>) {
    // The user speaks first, as Gemini wants it.
    let mut messages = vec![json!({ "role": "user", "content": "first" })];
    let mut said = vec![Said::User("first".into())];
    for (number, turn) in turns.iter().enumerate() {
        match turn {
            Turn::User(text) => {
                messages.push(json!({ "role": "user", "content": text }));
                said.push(Said::User(text.clone()));
            }
            Turn::Model {
                text,
                calls,
                rotated,
            } => {
                said.extend(text.clone().map(Said::Model));
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
                let made = calls.iter().cloned();
                said.extend(made.map(|(name, arguments, _)| Said::Call(name, arguments)));
                let given = calls.iter().cloned();
                said.extend(given.map(|(name, _, result)| Said::Result(name, result)));
            }
        }
    }
    let chat = json!({ "model": "svc-native-fast", "messages": messages });
    (chat, said)
}

/// Reads a conversation back, the way Gemini would.
fn heard(contents: &Value) -> Vec<Said> {
    let mut heard = Vec::new();
    for content in contents.as_array().unwrap() {
        for part in content["parts"].as_array().unwrap() {
            let owned = |value: &Value| value.as_str().unwrap().to_owned();
            let role = content["role"].as_str().unwrap();
            heard.push(if let Some(text) = part.get("text") {
                match role {
                    "user" => Said::User(owned(text)),
                    _ => Said::Model(owned(text)),
                }
            } else if let Some(call) = part.get("functionCall") {
                assert_eq!(role, "model");
                Said::Call(owned(&call["name"]), call["args"].clone())
            } else {
                assert_eq!(role, "user");
                let result = &part["functionResponse"];
                let text = match result["response"].get("result") {
                    Some(text) => owned(text),
                    None => result["response"].to_string(),
                };
                Said::Result(owned(&result["name"]), text)
            });
        }
    }
    heard
}

/// Pieces of an answer: texts and calls, in any order.
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

/// The pieces as a stream, some events with several of them.
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
    /// Every word, name and argument arrives, in order, results in the order of their calls.
    #[test]
    fn nothing_that_is_said_is_lost(turns in prop::collection::vec(turn(), 0..6)) {
        let (chat, said) = chat(&turns);
        let body = request(&chat, "gemini-3-flash", &Calls::default());
        prop_assert_eq!(heard(&body["contents"]), said);
    }

    /// No content is empty, and speakers alternate but for results, which stand alone.
    #[test]
    fn speakers_take_turns(turns in prop::collection::vec(turn(), 0..6)) {
        let body = request(&chat(&turns).0, "gemini-3-flash", &Calls::default());
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

    /// How the bytes of a stream are cut makes no difference.
    #[test]
    fn a_stream_may_be_cut_anywhere(
        pieces in pieces(),
        finish in finish(),
        an_event in 1..4_usize,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let stream = stream(&pieces, finish, an_event);
        let pieces = testing::pieces(stream.as_bytes(), &cuts);
        let shown = |(frames, failure): (Vec<String>, _)| (numbered(&frames.concat()), failure);
        let whole = shown(frames(&[stream.as_bytes()], 1));
        prop_assert_eq!(shown(frames(&pieces, 1)), whole);
    }

    /// A streamed answer and a whole one with the same content say the same.
    #[test]
    fn a_stream_says_what_a_whole_answer_says(
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

    /// A stream that ends before its candidates do was cut off, wherever that was.
    #[test]
    fn a_stream_without_an_end_is_an_interruption(pieces in pieces(), an_event in 1..4_usize) {
        let stream = stream(&pieces, "STOP", an_event);
        let events: Vec<_> = stream.split_inclusive("\r\n\r\n").collect();
        for kept in 0..events.len() {
            let (_, failure) = frames(&[events[..kept].concat().as_bytes()], 1);
            prop_assert!(failure.is_some());
        }
    }
}
