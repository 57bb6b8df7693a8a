//! Properties of every conversation and every stream.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{answer, caller_json, frames, parts, upstream_body};
use crate::{
    config::Quirks,
    upstream::testing::{self, MODEL, arguments, assembled, flattened, pieces, text},
    wire::part,
};

/// One or more messages of a caller's history.
#[derive(Clone, Debug)]
enum Turn {
    User(String),
    Assistant(String),
    /// Text beside the calls; then name, arguments and result of each call.
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

/// The turns as chat messages.
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
        messages.extend(results.rev()); // results need not be in the order of the calls
    }
    messages
}

/// What a model produces: pieces of text, reasoning, tool calls and a finish reason.
#[derive(Clone, Debug)]
struct ModelOutput {
    texts: Vec<String>,
    reasoning: Option<String>,
    calls: Vec<(String, Value)>,
    finish: &'static str,
}

fn model_output() -> impl Strategy<Value = ModelOutput> {
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
        .prop_map(|(texts, reasoning, calls, finish)| ModelOutput {
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

/// The output as a non-streamed response.
fn whole(output: &ModelOutput) -> Value {
    let calls = output
        .calls
        .iter()
        .enumerate()
        .map(|(at, (name, arguments))| {
            json!({ "id": format!("call_{at}"), "type": "function",
            "function": { "name": name, "arguments": arguments.to_string() } })
        });
    let calls: Vec<_> = calls.collect();
    let message = json!({ "role": "assistant", "content": output.texts.concat(),
        "reasoning_content": output.reasoning, "tool_calls": calls });
    json!({
        "id": "cmpl-9", "object": "chat.completion", "model": "vendor-model-9",
        "choices": [{ "index": 0, "message": message, "finish_reason": output.finish }],
        "usage": usage(),
    })
}

/// The output as a stream, of a server that follows the API closely or of one that does not.
fn streamed(output: &ModelOutput, tidy: bool) -> String {
    let mut deltas = vec![json!({ "role": "assistant", "content": "" })];
    let reasoning = output.reasoning.iter();
    deltas.extend(reasoning.map(|text| json!({ "reasoning_content": text, "content": null })));
    deltas.extend(output.texts.iter().map(|text| json!({ "content": text })));
    for (at, (name, arguments)) in output.calls.iter().enumerate() {
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
    let mut end =
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": output.finish }] });
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
    /// Every message is sent unchanged and in order, with its calls and call IDs.
    #[test]
    fn messages_are_sent_unchanged(
        system in prop::option::of(text()),
        turns in prop::collection::vec(turn(), 0..6),
        known in prop::sample::select(vec!["", "https://api.openai.com/v1", "https://api.mistral.ai/v1"]),
    ) {
        let messages = messages(system.as_deref(), &turns);
        let chat = json!({ "model": MODEL, "messages": messages }).to_string();
        let sent = upstream_body(chat.as_bytes(), &Quirks::for_base_url(known));
        prop_assert_eq!(&sent["messages"], &Value::from(messages));
    }

    /// The parts do not depend on how the bytes of a stream are split.
    #[test]
    fn a_stream_may_be_split_anywhere(
        output in model_output(),
        tidy in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let stream = streamed(&output, tidy);
        let bytes = stream.as_bytes();
        let expected = format!("{:?}", parts(&[bytes], 1));
        let single: Vec<_> = bytes.chunks(1).collect();
        prop_assert_eq!(format!("{:?}", parts(&pieces(bytes, &cuts), 1)), &*expected);
        prop_assert_eq!(format!("{:?}", parts(&single, 1)), &*expected);
    }

    /// A streamed and a whole response of the same output are equal for the caller.
    #[test]
    fn a_stream_equals_the_whole_response(output in model_output(), tidy in any::<bool>()) {
        let (frames, failure) = frames(streamed(&output, tidy).as_bytes(), 1);
        match answer::read(whole(&output).to_string().as_bytes(), 1) {
            Ok(whole) => {
                prop_assert_eq!(failure, None);
                prop_assert_eq!(assembled(&frames), flattened(&caller_json(&whole)));
            }
            Err(why) => prop_assert_eq!(failure, Some(why.to_string())),
        }
    }

    /// A whole response is equal for the caller when it is sent as parts, for a server that cannot stream.
    #[test]
    fn a_whole_response_equals_its_parts(output in model_output()) {
        if let Ok(whole) = answer::read(whole(&output).to_string().as_bytes(), 1) {
            let expected = flattened(&caller_json(&whole));
            let (frames, failure) = testing::frames((part::of(whole).collect(), None), 1);
            prop_assert_eq!(failure, None);
            prop_assert_eq!(assembled(&frames), expected);
        }
    }

    /// A stream that ends before its finish reason is a failure, wherever it was cut.
    #[test]
    fn a_stream_without_a_finish_reason_is_a_failure(
        output in model_output(),
        tidy in any::<bool>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let stream = streamed(&output, tidy);
        let end = stream.find("\"finish_reason\":\"").unwrap();
        for kept in [cut.index(end), end] {
            let (_, failure) = frames(&stream.as_bytes()[..kept], 1);
            prop_assert!(failure.is_some(), "{} bytes of {}", kept, stream);
        }
    }
}
