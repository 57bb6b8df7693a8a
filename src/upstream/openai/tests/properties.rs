//! What holds for every conversation and every stream.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{answer, frames, parts, sent, shown};
use crate::{
    config::Quirks,
    upstream::testing::{self, MODEL, arguments, assembled, flattened, pieces, text},
    wire::part,
};

/// A message or more of a caller's history.
#[derive(Clone, Debug)]
enum Turn {
    User(String),
    Assistant(String),
    /// What was said beside the calls; their names and arguments; what the tools said.
    Calls(Option<String>, Vec<(String, Value, String)>),
}

fn turn() -> impl Strategy<Value = Turn> {
    let calls = prop::collection::vec(("[a-z_]{1,8}", arguments(), text()), 1..4);
    prop_oneof![
        text().prop_map(Turn::User),
        text().prop_map(Turn::Assistant),
        (prop::option::of(text()), calls).prop_map(|(beside, calls)| Turn::Calls(beside, calls)),
    ]
}

/// The turns as messages, every key in its place.
fn messages(system: Option<&str>, turns: &[Turn]) -> Vec<Value> {
    let system = system.map(|text| json!({ "role": "system", "content": text }));
    let mut messages: Vec<_> = system.into_iter().collect();
    messages.push(json!({ "role": "user", "content": "first" }));
    for (number, turn) in turns.iter().enumerate() {
        let (beside, calls) = match turn {
            Turn::User(text) => {
                messages.push(json!({ "role": "user", "content": text }));
                continue;
            }
            Turn::Assistant(text) => {
                messages.push(json!({ "role": "assistant", "content": text }));
                continue;
            }
            Turn::Calls(beside, calls) => (beside, calls),
        };
        let id = |at: usize| format!("call_{number}_{at}");
        let made = calls.iter().enumerate().map(|(at, (name, arguments, _))| {
            json!({ "id": id(at), "type": "function",
                "function": { "name": name, "arguments": arguments.to_string() } })
        });
        let made: Vec<_> = made.collect();
        messages.push(json!({ "role": "assistant", "content": beside, "tool_calls": made }));
        let results = calls.iter().enumerate().map(|(at, (_, _, result))| {
            json!({ "role": "tool", "tool_call_id": id(at), "content": result })
        });
        messages.extend(results.rev()); // in an order of their own
    }
    messages
}

/// An answer: pieces of text, pieces of reasoning beside them, calls, why it ended.
#[derive(Clone, Debug)]
struct Said {
    texts: Vec<String>,
    reasoning: Option<String>,
    calls: Vec<(String, Value)>,
    finish: &'static str,
}

fn said() -> impl Strategy<Value = Said> {
    let finish = [
        "stop",
        "length",
        "content_filter",
        "tool_calls",
        "eos",
        "error",
    ];
    (
        prop::collection::vec(text(), 0..4),
        prop::option::of(text()),
        prop::collection::vec(("[a-z_]{1,8}", arguments()), 0..3),
        prop::sample::select(finish.to_vec()),
    )
        .prop_map(|(texts, reasoning, calls, finish)| Said {
            texts,
            reasoning,
            calls,
            finish,
        })
}

fn usage() -> Value {
    json!({ "prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16,
        "prompt_tokens_details": { "cached_tokens": 4 } })
}

/// The same answer, whole.
fn whole(said: &Said) -> Value {
    let calls = said
        .calls
        .iter()
        .enumerate()
        .map(|(at, (name, arguments))| {
            json!({ "id": format!("call_{at}"), "type": "function",
            "function": { "name": name, "arguments": arguments.to_string() } })
        });
    let calls: Vec<_> = calls.collect();
    let message = json!({ "role": "assistant", "content": said.texts.concat(),
        "reasoning_content": said.reasoning, "tool_calls": calls });
    json!({
        "id": "cmpl-9", "object": "chat.completion", "model": "vendor-model-9",
        "choices": [{ "index": 0, "message": message, "finish_reason": said.finish }],
        "usage": usage(),
    })
}

/// The same answer, streamed, by a server that is tidy or one that is not.
fn streamed(said: &Said, tidy: bool) -> String {
    let mut deltas = vec![json!({ "role": "assistant", "content": "" })];
    let reasoning = said.reasoning.iter();
    deltas.extend(reasoning.map(|text| json!({ "reasoning_content": text, "content": null })));
    deltas.extend(said.texts.iter().map(|text| json!({ "content": text })));
    for (at, (name, arguments)) in said.calls.iter().enumerate() {
        let id = format!("call_{at}");
        deltas.push(
            json!({ "tool_calls": [{ "index": at, "id": id, "type": "function",
            "function": { "name": name, "arguments": "" } }] }),
        );
        let letters: Vec<char> = arguments.to_string().chars().collect();
        for piece in letters.chunks(3) {
            let piece: String = piece.iter().collect();
            let fragment = if tidy {
                json!({ "index": at, "function": { "arguments": piece } })
            } else {
                json!({ "index": at, "id": null, "type": null,
                    "function": { "name": null, "arguments": piece } })
            };
            deltas.push(json!({ "tool_calls": [fragment] }));
        }
    }
    let mut events: Vec<_> = deltas
        .into_iter()
        .map(|mut delta| {
            if !tidy {
                delta["role"] = "assistant".into();
                return json!({ "choices": [{ "delta": delta }] });
            }
            json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }],
                "usage": null })
        })
        .collect();
    let mut end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": said.finish }] });
    if tidy {
        events.push(end);
        events.push(json!({ "choices": [], "usage": usage() }));
    } else {
        end["usage"] = usage();
        events.push(end);
    }
    let (before, after) = if tidy {
        ("data: ", "\n\n")
    } else {
        ("data:", "\r\n\r\n")
    };
    let events = events.iter().map(|event| format!("{before}{event}{after}"));
    let done = if tidy {
        "data: [DONE]\n\n"
    } else {
        ": goodbye\n\n"
    };
    events.chain([done.to_owned()]).collect()
}

proptest! {
    /// Every message arrives as it was: its text, its place, its calls and whom it answers.
    #[test]
    fn nothing_that_is_said_is_lost(
        system in prop::option::of(text()),
        turns in prop::collection::vec(turn(), 0..6),
        known in prop::sample::select(vec!["", "https://api.openai.com/v1", "https://api.mistral.ai/v1"]),
    ) {
        let messages = messages(system.as_deref(), &turns);
        let chat = json!({ "model": MODEL, "messages": messages }).to_string();
        let sent = sent(chat.as_bytes(), &Quirks::for_base_url(known));
        prop_assert_eq!(&sent["messages"], &Value::from(messages));
    }

    /// How the bytes of a stream are cut makes no difference.
    #[test]
    fn a_stream_may_be_cut_anywhere(
        said in said(),
        tidy in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let stream = streamed(&said, tidy);
        let bytes = stream.as_bytes();
        let expected = format!("{:?}", parts(&[bytes], 1));
        let single: Vec<_> = bytes.chunks(1).collect();
        prop_assert_eq!(format!("{:?}", parts(&pieces(bytes, &cuts), 1)), &*expected);
        prop_assert_eq!(format!("{:?}", parts(&single, 1)), &*expected);
    }

    /// A streamed answer and a whole one with the same content say the same.
    #[test]
    fn a_stream_says_what_a_whole_answer_says(said in said(), tidy in any::<bool>()) {
        let (frames, failure) = frames(streamed(&said, tidy).as_bytes(), 1);
        match answer::read(whole(&said).to_string().as_bytes(), 1) {
            Ok(whole) => {
                prop_assert_eq!(failure, None);
                prop_assert_eq!(assembled(&frames), flattened(&shown(&whole)));
            }
            Err(why) => prop_assert_eq!(failure, Some(why.to_string())),
        }
    }

    /// So does a whole answer that is streamed for a server that cannot.
    #[test]
    fn an_answer_in_parts_says_the_same(said in said()) {
        if let Ok(whole) = answer::read(whole(&said).to_string().as_bytes(), 1) {
            let expected = flattened(&shown(&whole));
            let (frames, failure) = testing::frames((part::of(whole).collect(), None), 1);
            prop_assert_eq!(failure, None);
            prop_assert_eq!(assembled(&frames), expected);
        }
    }

    /// A stream that ends before its answer does was cut off, wherever that was.
    #[test]
    fn a_stream_without_an_end_is_an_interruption(
        said in said(),
        tidy in any::<bool>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let stream = streamed(&said, tidy);
        let end = stream.find("\"finish_reason\":\"").unwrap();
        for kept in [cut.index(end), end] {
            let (_, failure) = frames(&stream.as_bytes()[..kept], 1);
            prop_assert!(failure.is_some(), "{} bytes of {}", kept, stream);
        }
    }
}
