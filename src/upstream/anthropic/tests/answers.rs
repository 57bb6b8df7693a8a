//! Properties of any response, whole or streamed.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::parts;
use crate::{
    upstream::{
        anthropic::answer,
        testing::{arguments, text},
    },
    wire::{chat::FinishReason, json_text::JsonText, part::Part},
};

/// A content block of a response; a text is streamed in pieces.
#[derive(Clone, Debug)]
enum Block {
    Text(Vec<String>),
    Thinking(String),
    Call(String, Value),
}

fn block() -> impl Strategy<Value = Block> {
    prop_oneof![
        prop::collection::vec(text(), 0..4).prop_map(Block::Text),
        text().prop_map(Block::Thinking),
        ("[a-z]{1,6}", arguments()).prop_map(|(name, input)| Block::Call(name, input)),
    ]
}

const STOP_REASONS: [&str; 5] = [
    "end_turn",
    "tool_use",
    "max_tokens",
    "refusal",
    "stop_sequence",
];

/// The blocks as a non-streamed response.
fn whole(blocks: &[Block], stop_reason: &str) -> Value {
    let content = blocks.iter().enumerate().map(|(at, block)| match block {
        Block::Text(pieces) => json!({ "type": "text", "text": pieces.concat() }),
        Block::Thinking(text) => json!({ "type": "thinking", "thinking": text, "signature": "s" }),
        Block::Call(name, input) => {
            json!({ "type": "tool_use", "id": format!("toolu_{at}"), "name": name, "input": input })
        }
    });
    json!({
        "type": "message", "role": "assistant", "content": content.collect::<Vec<_>>(),
        "stop_reason": stop_reason, "usage": usage(),
    })
}

fn usage() -> Value {
    json!({ "input_tokens": 9, "cache_read_input_tokens": 5, "output_tokens": 7 })
}

/// The blocks as a stream.
fn streamed(blocks: &[Block], stop_reason: &str) -> String {
    let start = json!({ "input_tokens": 9, "cache_read_input_tokens": 5, "output_tokens": 1 });
    let mut events = vec![
        json!({ "type": "message_start", "message": { "content": [], "usage": start } }),
        json!({ "type": "ping" }),
    ];
    for (at, block) in blocks.iter().enumerate() {
        let (opened, deltas) = match block {
            Block::Text(pieces) => {
                let delta = |text| json!({ "type": "text_delta", "text": text });
                let deltas: Vec<_> = pieces.iter().map(delta).collect();
                (json!({ "type": "text", "text": "" }), deltas)
            }
            Block::Thinking(text) => {
                let delta = json!({ "type": "thinking_delta", "thinking": text });
                (json!({ "type": "thinking", "thinking": "" }), vec![delta])
            }
            Block::Call(name, input) => {
                let opened = json!({ "type": "tool_use", "id": format!("toolu_{at}"),
                    "name": name, "input": {} });
                (opened, input_deltas(input))
            }
        };
        events.push(json!({ "type": "content_block_start", "index": at, "content_block": opened }));
        for delta in deltas {
            events.push(json!({ "type": "content_block_delta", "index": at, "delta": delta }));
        }
        events.push(json!({ "type": "content_block_stop", "index": at }));
    }
    let counted = json!({ "output_tokens": 7 });
    events.push(
        json!({ "type": "message_delta", "delta": { "stop_reason": stop_reason }, "usage": counted }),
    );
    events.push(json!({ "type": "message_stop" }));
    let events = events.iter().map(|event| {
        let kind = event["type"].as_str().unwrap();
        format!("event: {kind}\ndata: {event}\n\n")
    });
    events.collect()
}

/// A tool's input as fragments of three characters; the API sends none for an empty input.
fn input_deltas(input: &Value) -> Vec<Value> {
    if input == &json!({}) {
        return Vec::new();
    }
    let letters: Vec<char> = input.to_string().chars().collect();
    let pieces = letters
        .chunks(3)
        .map(|piece| piece.iter().collect::<String>());
    let delta = |piece| json!({ "type": "input_json_delta", "partial_json": piece });
    pieces.map(delta).collect()
}

/// The content of a response.
#[derive(Debug, Default, PartialEq)]
struct Parsed {
    text: String,
    calls: Vec<(String, String, String)>,
    finish: Option<FinishReason>,
    tokens: Option<(u32, u32, u32)>,
}

fn parse_whole(body: &Value) -> Parsed {
    let answer = answer::read(body.to_string().as_bytes()).unwrap();
    let choice = &answer.choices[0];
    let calls = choice.tool_calls.iter().map(|call| {
        let function = &call.function;
        (
            call.id.clone(),
            function.name.clone(),
            function.arguments.decode(),
        )
    });
    Parsed {
        text: choice
            .content
            .as_ref()
            .map_or(String::new(), JsonText::decode),
        calls: calls.collect(),
        finish: Some(choice.finish),
        tokens: answer.usage.map(|u| (u.prompt, u.cached, u.completion)),
    }
}

fn parse_streamed(parts: Vec<Part>) -> Parsed {
    let mut parsed = Parsed::default();
    for part in parts {
        assert_eq!(parsed.finish, None, "nothing follows the end");
        match part {
            Part::Content { text, .. } => parsed.text.push_str(&text.decode()),
            Part::ToolCall {
                slot,
                id,
                name,
                arguments,
                ..
            } => {
                let slot = slot as usize;
                if slot == parsed.calls.len() {
                    parsed
                        .calls
                        .push((id.unwrap(), name.unwrap(), String::new()));
                }
                let arguments = arguments.as_ref().map_or(String::new(), JsonText::decode);
                parsed.calls[slot].2.push_str(&arguments);
            }
            Part::Finish { reason, .. } => parsed.finish = Some(reason),
            Part::Usage(u) => parsed.tokens = Some((u.prompt, u.cached, u.completion)),
            Part::Silence | Part::Native(_) => {}
        }
    }
    parsed
}

proptest! {
    /// The parts do not depend on how the bytes are split.
    #[test]
    fn any_split_gives_the_same_parts(
        blocks in prop::collection::vec(block(), 0..5),
        cuts in prop::collection::vec(0_usize..4_000, 0..8),
    ) {
        let stream = streamed(&blocks, "end_turn");
        let bytes = stream.as_bytes();
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let expected = format!("{:?}", parts([bytes]));
        let pieces = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]);
        prop_assert_eq!(format!("{:?}", parts(pieces)), &*expected);
        prop_assert_eq!(format!("{:?}", parts(bytes.chunks(1))), &*expected);
    }

    /// A streamed and a whole response with the same blocks are equal.
    #[test]
    fn a_stream_equals_the_whole_response(
        blocks in prop::collection::vec(block(), 0..5),
        stop_reason in prop::sample::select(STOP_REASONS.to_vec()),
    ) {
        let (parts, failed) = parts([streamed(&blocks, stop_reason).as_bytes()]);
        prop_assert!(failed.is_none());
        prop_assert_eq!(parse_streamed(parts), parse_whole(&whole(&blocks, stop_reason)));
    }

    /// A stream that is cut before its last event has neither finish reason nor usage.
    #[test]
    fn a_stream_that_is_cut_off_has_no_finish_and_no_usage(
        blocks in prop::collection::vec(block(), 0..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let stream = streamed(&blocks, "end_turn");
        let last = stream.rfind("event: message_stop").unwrap();
        let between_events = stream[..last].match_indices("\n\n").map(|(at, _)| at + 2);
        for cut in between_events.chain([cut.index(last)]) {
            let (parts, failed) = parts([&stream.as_bytes()[..cut]]);
            prop_assert!(failed.is_none());
            let parsed = parse_streamed(parts);
            prop_assert_eq!((parsed.finish, parsed.tokens), (None, None));
        }
    }
}
