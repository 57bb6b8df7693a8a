//! Whole streams: parts of a provider's response in, events out.

use std::sync::Arc;

use axum::http::StatusCode;
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::{
    super::{
        Events,
        tool_names::{CallerTool, ToolKind},
    },
    BILL, USAGE, new_response,
};
use crate::wire::{
    chat::{FinishReason, Frames, ShowUsage},
    error::Envelope,
    json_text::JsonText,
    part::Part,
    stream_normalizer::StreamNormalizer,
    stream_writer::StreamWriter as _,
};

fn text(text: &str) -> Part {
    Part::Content {
        choice: 0,
        text: JsonText::new(text),
        logprobs: None,
    }
}

/// A fragment of a tool call; the first one of a call has its ID and name.
fn tool_call(slot: u32, id_and_name: Option<(&str, &str)>, arguments: &str) -> Part {
    let (id, name) = id_and_name.unzip();
    Part::ToolCall {
        choice: 0,
        slot,
        id: id.map(str::to_owned),
        name: name.map(str::to_owned),
        arguments: (!arguments.is_empty()).then(|| JsonText::new(arguments)),
    }
}

fn finished(reason: FinishReason) -> Part {
    Part::Finish { choice: 0, reason }
}

/// The writer of a response whose tools `patch` (custom) and `tiny__add` (in a namespace) were offered.
fn writer() -> Events {
    let mut response = new_response();
    for (kind, namespace, name) in [
        (ToolKind::Custom, None, "patch"),
        (ToolKind::Function, Some("tiny"), "add"),
    ] {
        response.names.add(&CallerTool {
            kind,
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        });
    }
    Events::new(Arc::new(response), || 200)
}

fn stream(parts: Vec<Part>) -> StreamNormalizer<Events> {
    let mut stream = StreamNormalizer::new(writer(), 1);
    for part in parts {
        stream.on_part(part).unwrap();
    }
    stream
}

fn frames(stream: &mut StreamNormalizer<Events>) -> Vec<String> {
    let frames = stream.take_ready();
    let frames = frames.map(|frame| String::from_utf8(frame.to_vec()).unwrap());
    frames.collect()
}

/// The frames of a complete response.
fn complete(mut parts: Vec<Part>, reason: FinishReason) -> Vec<String> {
    parts.extend([finished(reason), Part::Usage(USAGE)]);
    let mut stream = stream(parts);
    stream.close().unwrap();
    stream.bill(Some(BILL));
    stream.end();
    frames(&mut stream)
}

/// The data of each event but `[DONE]`; asserts that the frames are well-formed and numbered.
#[track_caller]
fn events(frames: &[String]) -> Vec<Value> {
    let frames = frames.iter().filter(|frame| *frame != "data: [DONE]\n\n");
    let events = frames.enumerate().map(|(number, frame)| {
        let frame = frame.strip_suffix("\n\n").unwrap();
        let (event, data) = frame.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(event.strip_prefix("event: "), data["type"].as_str());
        assert_eq!(data["sequence_number"], number, "{frame}");
        data
    });
    events.collect()
}

/// One event per line; of the response object only the fields that differ from its initial state.
fn listed(frames: &[String]) -> String {
    let initial = new_response().in_progress();
    let mut shown = String::new();
    for mut event in events(frames) {
        if let Some(response) = event.get_mut("response").and_then(Value::as_object_mut) {
            response.retain(|key, value| key == "id" || initial[key] != *value);
        }
        shown.push_str(&event.to_string());
        shown.push('\n');
    }
    if frames.last().is_some_and(|last| last.contains("[DONE]")) {
        shown.push_str("[DONE]\n");
    }
    shown
}

/// Asserts that the response in the last event matches the events before it.
#[track_caller]
fn assert_consistent(frames: &[String]) {
    let events = events(frames);
    let last = &events.last().unwrap()["response"];
    let of_kind = |kind: &str| -> Vec<Value> {
        let events = events.iter().filter(|event| event["type"] == kind);
        events.cloned().collect()
    };
    let (added, done) = (
        of_kind("response.output_item.added"),
        of_kind("response.output_item.done"),
    );
    assert_eq!(added.len(), done.len());
    for (at, (added, done)) in added.iter().zip(&done).enumerate() {
        assert_eq!(
            (&added["output_index"], &done["output_index"]),
            (&at.into(), &at.into())
        );
        assert_eq!(added["item"]["id"], done["item"]["id"]);
        assert_eq!(last["output"][at], done["item"]);
        let deltas = events.iter().filter(|event| event.get("delta").is_some());
        let deltas = deltas.filter(|event| event["item_id"] == added["item"]["id"]);
        let sent: String = deltas
            .map(|event| event["delta"].as_str().unwrap())
            .collect();
        let item = &done["item"];
        let whole = match item["type"].as_str().unwrap() {
            "message" => &item["content"][0]["text"],
            "custom_tool_call" => &item["input"],
            _ => &item["arguments"],
        };
        assert_eq!(*whole, sent);
    }
    assert_eq!(last["output"].as_array().unwrap().len(), added.len());
}

#[test]
fn streams_that_are_complete() {
    use FinishReason::{ContentFilter, Length, Stop, ToolCalls};

    let (f, g) = (Some(("call_a", "f")), Some(("call_b", "g")));
    for (name, parts, reason) in [
        (
            "text",
            vec![text("Grüß "), text(""), text("dich\u{0}")],
            Stop,
        ),
        (
            "function_call",
            vec![
                tool_call(0, f, ""),
                tool_call(0, None, "{\"a\""),
                tool_call(0, None, ":1}"),
            ],
            ToolCalls,
        ),
        (
            "function_call_without_arguments",
            vec![tool_call(0, f, "")],
            ToolCalls,
        ),
        (
            "text_and_two_calls",
            vec![
                text("Let me see."),
                tool_call(0, f, "{\"a\":1}"),
                tool_call(1, g, "{\"b\":2}"),
            ],
            ToolCalls,
        ),
        (
            "interleaved_calls",
            vec![
                tool_call(0, f, "{\"a\""),
                tool_call(1, g, "{\"b\""),
                tool_call(0, None, ":1}"),
                tool_call(1, None, ":2}"),
            ],
            ToolCalls,
        ),
        // A provider that sends text in the middle of a call.
        (
            "text_within_a_call",
            vec![
                tool_call(0, f, "{\"a\""),
                text("One "),
                tool_call(0, None, ":1}"),
                text("moment."),
                tool_call(1, g, ""),
            ],
            ToolCalls,
        ),
        ("length", vec![text("Once upon")], Length),
        (
            "length_within_a_call",
            vec![text("Hm"), tool_call(0, f, "{\"a\"")],
            Length,
        ),
        ("content_filter", vec![text("I can")], ContentFilter),
        ("content_filter_without_text", vec![], ContentFilter),
        ("empty", vec![text("")], Stop),
    ] {
        let frames = complete(parts, reason);
        assert_consistent(&frames);
        insta::assert_snapshot!(name, listed(&frames));
    }
}

#[test]
fn streams_with_calls_of_agents() {
    use FinishReason::{Length, ToolCalls};

    let (f, g) = (Some(("call_a", "f")), Some(("call_b", "g")));
    let (patch, add) = (Some(("call_c", "patch")), Some(("call_d", "tiny__add")));
    for (name, parts, reason) in [
        (
            "custom_call",
            vec![
                tool_call(0, patch, ""),
                tool_call(0, None, "{\"inp"),
                tool_call(0, None, "ut\": \"*** Begin\\"),
                tool_call(0, None, "nPatch \\ud83d"),
                tool_call(0, None, "\\ude00\"}"),
            ],
            ToolCalls,
        ),
        (
            "custom_call_of_another_form",
            vec![tool_call(0, patch, "{\"patch\":1}")],
            ToolCalls,
        ),
        (
            "namespaced_call",
            vec![tool_call(0, add, "{\"a\":1}")],
            ToolCalls,
        ),
        (
            "length_within_a_custom_call",
            vec![tool_call(0, patch, "{\"input\":\"*** Begin\\")],
            Length,
        ),
        // The calls are interleaved, so all of them may be cut off; text came in between.
        (
            "length_within_several_calls",
            vec![
                tool_call(0, f, "{\"a\""),
                tool_call(1, patch, "{\"input\":\"12"),
                tool_call(2, g, "{}"),
                text("Hm"),
            ],
            Length,
        ),
    ] {
        let frames = complete(parts, reason);
        assert_consistent(&frames);
        insta::assert_snapshot!(name, listed(&frames));
    }
}

#[test]
fn a_stream_that_fails_midway_ends_with_what_every_client_looks_for() {
    let mut stream = stream(vec![text("Once "), text("upon")]);
    let sent = frames(&mut stream);
    stream.fail(&Envelope {
        status: StatusCode::OK,
        message: "It broke off.".into(),
        kind: "upstream_stream_error",
        code: Some("stream_interrupted".into()),
        param: None,
        extra: Map::new(),
    });
    let all = [sent, frames(&mut stream)].concat();
    insta::assert_snapshot!(listed(&all));
    assert!(!all.concat().contains("[DONE]"));
}

#[test]
fn an_event_keeps_a_silent_stream_alive() {
    let mut writer = writer();
    assert_eq!(writer.keep_alive(), None, "not before the stream begins");
    let mut frames = Vec::new();
    writer.open(0, &mut frames);
    frames.extend(writer.keep_alive());
    writer.content(0, &JsonText::new("Hi"), None, &mut frames);
    let frames = frames
        .iter()
        .map(|frame| String::from_utf8(frame.to_vec()).unwrap());
    let kinds: Vec<_> = events(&frames.collect::<Vec<_>>())
        .iter()
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds[2..4], ["keepalive", "response.output_item.added"]);
}

#[test]
fn usage_that_is_not_known_is_null() {
    let mut stream = stream(vec![text("Hi"), finished(FinishReason::Stop)]);
    stream.close().unwrap();
    stream.end();
    let frames = frames(&mut stream);
    assert_eq!(
        events(&frames).last().unwrap()["response"]["usage"],
        Value::Null
    );
}

#[test]
fn a_response_that_could_not_be_stored_ends_with_store_false() {
    let ended = |is_stored: bool| {
        let parts = vec![text("Hi"), finished(FinishReason::Stop), Part::Usage(USAGE)];
        let mut stream = stream(parts);
        stream.close().unwrap();
        stream.bill(Some(BILL));
        let stored = stream.writer().to_store(Some(BILL)).unwrap();
        if !is_stored {
            stream.writer().not_stored();
        }
        stream.end();
        let frames = frames(&mut stream);
        let sent = events(&frames).pop().unwrap()["response"].clone();
        (serde_json::from_str::<Value>(&stored).unwrap(), sent)
    };
    let (stored, sent) = ended(true);
    assert_eq!(sent["store"], true);
    assert_eq!(stored, sent, "the stored response equals the one sent");
    assert_eq!(ended(false).1["store"], false);
    let mut unwanted = new_response();
    unwanted.echo.store = false;
    let writer = Events::new(Arc::new(unwanted), || 200);
    assert_eq!(writer.to_store(Some(BILL)), None);
}

/// Any part that a provider may send for one choice. Fragments of a call need not be JSON.
fn any_part() -> impl Strategy<Value = Part> {
    let texts = prop::sample::select(vec!["", "a", "ü ", "\u{0}\n"]);
    let fragment = prop::sample::select(vec!["", "{", "\"x\":1", "}", "{}", "no"]);
    let call = (0..3_u32, prop::option::of(0..3_usize), fragment);
    let named = [("call_a", "f"), ("call_b", "tiny__add"), ("call_c", "h")];
    prop_oneof![
        texts.prop_map(text),
        call.prop_map(move |(slot, id, arguments)| tool_call(
            slot,
            id.map(|id| named[id]),
            arguments
        )),
        Just(Part::Silence),
    ]
}

proptest! {
    /// For any parts, the events are consistent, and both APIs have the same text and calls.
    #[test]
    fn events_match_chat_frames(parts in prop::collection::vec(any_part(), 0..12)) {
        let all = [
            // Names all calls first: a call without a name is an error, which another test covers.
            vec![tool_call(0, Some(("call_0", "f")), ""), tool_call(1, Some(("call_1", "g")), "")],
            vec![tool_call(2, Some(("call_2", "h")), "")],
            parts,
        ].concat();
        let frames = complete(all.clone(), FinishReason::ToolCalls);
        assert_consistent(&frames);
        let output = events(&frames).pop().unwrap()["response"]["output"].clone();
        let mut chat = Content::default();
        let mut response = Content::default();
        for item in output.as_array().unwrap() {
            if item["type"] == "message" {
                response.text.push_str(item["content"][0]["text"].as_str().unwrap());
            } else {
                let of = |key: &str| item[key].as_str().unwrap().to_owned();
                let name = match item.get("namespace") {
                    Some(namespace) => format!("{}__{}", namespace.as_str().unwrap(), of("name")),
                    None => of("name"),
                };
                response.calls.push((of("call_id"), name, of("arguments")));
            }
        }
        for delta in chat_deltas(all) {
            chat.text.push_str(delta["content"].as_str().unwrap_or_default());
            for call in delta["tool_calls"].as_array().into_iter().flatten() {
                let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                if call.get("id").is_some() {
                    let name = of(&call["function"]["name"]);
                    chat.calls.push((of(&call["id"]), name, String::new()));
                }
                let last = chat.calls.last_mut().unwrap();
                last.2.push_str(&of(&call["function"]["arguments"]));
            }
        }
        prop_assert_eq!(response, chat);
    }
}

#[derive(Debug, Default, PartialEq)]
struct Content {
    text: String,
    calls: Vec<(String, String, String)>,
}

/// The deltas of these parts as a chat completion.
fn chat_deltas(mut parts: Vec<Part>) -> Vec<Value> {
    parts.push(finished(FinishReason::ToolCalls));
    let usage = ShowUsage {
        at_all: false,
        cached: false,
    };
    let mut stream = StreamNormalizer::new(Frames::new("id", 1, "m", usage), 1);
    for part in parts {
        stream.on_part(part).unwrap();
    }
    stream.close().unwrap();
    let frames = stream.take_ready().map(|frame| {
        let frame = String::from_utf8(frame.to_vec()).unwrap();
        let frame: Value = serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap();
        frame["choices"][0]["delta"].clone()
    });
    frames.collect()
}
