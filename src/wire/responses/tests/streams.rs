//! Whole streams, from the parts of a provider's answer to the events of ours.

use axum::http::StatusCode;
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::{super::Events, BILL, USAGE, new_response};
use crate::wire::{
    chat::{FinishReason, Frames, ShowUsage},
    error::Envelope,
    json_text::JsonText,
    part::Part,
    script::Script as _,
    shape::Shape,
};

fn said(text: &str) -> Part {
    Part::Content {
        choice: 0,
        text: JsonText::new(text),
        logprobs: None,
    }
}

/// A fragment of a call; the first one of each has its ID and name.
fn called(slot: u32, id_and_name: Option<(&str, &str)>, arguments: &str) -> Part {
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

fn shape(parts: Vec<Part>) -> Shape<Events> {
    let mut shape = Shape::new(Events::new(new_response(), || 200), 1);
    for part in parts {
        shape.on_part(part).unwrap();
    }
    shape
}

fn frames(shape: &mut Shape<Events>) -> Vec<String> {
    let frames = shape.take_ready();
    let frames = frames.map(|frame| String::from_utf8(frame.to_vec()).unwrap());
    frames.collect()
}

/// The frames of an answer that is complete.
fn complete(mut parts: Vec<Part>, reason: FinishReason) -> Vec<String> {
    parts.extend([finished(reason), Part::Usage(USAGE)]);
    let mut shape = shape(parts);
    shape.close().unwrap();
    shape.bill(Some(BILL));
    shape.end();
    frames(&mut shape)
}

/// The data of each event, whose frame must be as it should; `[DONE]` is not among them.
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

/// One event a line, with what differs from the response as it began.
fn listed(frames: &[String]) -> String {
    let begun = new_response().begun();
    let mut shown = String::new();
    for mut event in events(frames) {
        if let Some(response) = event.get_mut("response").and_then(Value::as_object_mut) {
            response.retain(|key, value| key == "id" || begun[key] != *value);
        }
        shown.push_str(&event.to_string());
        shown.push('\n');
    }
    if frames.last().is_some_and(|last| last.contains("[DONE]")) {
        shown.push_str("[DONE]\n");
    }
    shown
}

/// What the last event has, the events before it have said.
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
        let told: String = deltas
            .map(|event| event["delta"].as_str().unwrap())
            .collect();
        let item = &done["item"];
        let whole = if item["type"] == "message" {
            &item["content"][0]["text"]
        } else {
            &item["arguments"]
        };
        assert_eq!(*whole, told);
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
            vec![said("Grüß "), said(""), said("dich\u{0}")],
            Stop,
        ),
        (
            "function_call",
            vec![
                called(0, f, ""),
                called(0, None, "{\"a\""),
                called(0, None, ":1}"),
            ],
            ToolCalls,
        ),
        (
            "function_call_without_arguments",
            vec![called(0, f, "")],
            ToolCalls,
        ),
        (
            "text_and_two_calls",
            vec![
                said("Let me see."),
                called(0, f, "{\"a\":1}"),
                called(1, g, "{\"b\":2}"),
            ],
            ToolCalls,
        ),
        (
            "interleaved_calls",
            vec![
                called(0, f, "{\"a\""),
                called(1, g, "{\"b\""),
                called(0, None, ":1}"),
                called(1, None, ":2}"),
            ],
            ToolCalls,
        ),
        // A provider that goes on talking in the middle of a call.
        (
            "text_within_a_call",
            vec![
                called(0, f, "{\"a\""),
                said("One "),
                called(0, None, ":1}"),
                said("moment."),
                called(1, g, ""),
            ],
            ToolCalls,
        ),
        ("length", vec![said("Once upon")], Length),
        (
            "length_within_a_call",
            vec![said("Hm"), called(0, f, "{\"a\"")],
            Length,
        ),
        ("content_filter", vec![said("I can")], ContentFilter),
        ("content_filter_without_text", vec![], ContentFilter),
        ("empty", vec![said("")], Stop),
    ] {
        let frames = complete(parts, reason);
        assert_consistent(&frames);
        insta::assert_snapshot!(name, listed(&frames));
    }
}

#[test]
fn a_stream_that_fails_midway_ends_with_what_every_client_looks_for() {
    let mut shape = shape(vec![said("Once "), said("upon")]);
    let told = frames(&mut shape);
    shape.fail(&Envelope {
        status: StatusCode::OK,
        message: "It broke off.".into(),
        kind: "upstream_stream_error",
        code: Some("stream_interrupted".into()),
        param: None,
        extra: Map::new(),
    });
    let all = [told, frames(&mut shape)].concat();
    insta::assert_snapshot!(listed(&all));
    assert!(!all.concat().contains("[DONE]"));
}

#[test]
fn usage_that_is_not_known_is_null() {
    let mut shape = shape(vec![said("Hi"), finished(FinishReason::Stop)]);
    shape.close().unwrap();
    shape.end();
    let frames = frames(&mut shape);
    assert_eq!(
        events(&frames).last().unwrap()["response"]["usage"],
        Value::Null
    );
}

#[test]
fn what_could_not_be_stored_says_so_at_the_end() {
    let ended = |is_stored: bool| {
        let parts = vec![said("Hi"), finished(FinishReason::Stop), Part::Usage(USAGE)];
        let mut shape = shape(parts);
        shape.close().unwrap();
        shape.bill(Some(BILL));
        let kept = shape.script().to_store(Some(BILL)).unwrap();
        if !is_stored {
            shape.script().not_stored();
        }
        shape.end();
        let frames = frames(&mut shape);
        let told = events(&frames).pop().unwrap()["response"].clone();
        (serde_json::from_str::<Value>(&kept).unwrap(), told)
    };
    let (kept, told) = ended(true);
    assert_eq!(told["store"], true);
    assert_eq!(kept, told, "what is stored is what was told");
    assert_eq!(ended(false).1["store"], false);
    let mut unwanted = new_response();
    unwanted.echo.store = false;
    assert_eq!(Events::new(unwanted, || 200).to_store(Some(BILL)), None);
}

/// What a provider may send of one choice, in any order. Fragments of a call need not be JSON.
fn any_part() -> impl Strategy<Value = Part> {
    let text = prop::sample::select(vec!["", "a", "ü ", "\u{0}\n"]);
    let fragment = prop::sample::select(vec!["", "{", "\"x\":1", "}", "{}", "no"]);
    let call = (0..3_u32, prop::option::of(0..3_usize), fragment);
    let named = [("call_a", "f"), ("call_b", "g"), ("call_c", "h")];
    prop_oneof![
        text.prop_map(said),
        call.prop_map(move |(slot, id, arguments)| called(slot, id.map(|id| named[id]), arguments)),
        Just(Part::Silence),
    ]
}

proptest! {
    /// Whatever comes, the events are consistent, and both endpoints tell the same.
    #[test]
    fn events_tell_what_chat_would(parts in prop::collection::vec(any_part(), 0..12)) {
        let all = [
            // A call without a name is a failure, and another test's.
            vec![called(0, Some(("call_0", "f")), ""), called(1, Some(("call_1", "g")), "")],
            vec![called(2, Some(("call_2", "h")), "")],
            parts,
        ].concat();
        let frames = complete(all.clone(), FinishReason::ToolCalls);
        assert_consistent(&frames);
        let output = events(&frames).pop().unwrap()["response"]["output"].clone();
        let mut chat = Told::default();
        let mut response = Told::default();
        for item in output.as_array().unwrap() {
            if item["type"] == "message" {
                response.text.push_str(item["content"][0]["text"].as_str().unwrap());
            } else {
                let of = |key: &str| item[key].as_str().unwrap().to_owned();
                response.calls.push((of("call_id"), of("name"), of("arguments")));
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
struct Told {
    text: String,
    calls: Vec<(String, String, String)>,
}

/// The deltas of the same answer as a chat completion.
fn chat_deltas(mut parts: Vec<Part>) -> Vec<Value> {
    parts.push(finished(FinishReason::ToolCalls));
    let usage = ShowUsage {
        at_all: false,
        cached: false,
    };
    let mut shape = Shape::new(Frames::new("id", 1, "m", usage), 1);
    for part in parts {
        shape.on_part(part).unwrap();
    }
    shape.close().unwrap();
    let frames = shape.take_ready().map(|frame| {
        let frame = String::from_utf8(frame.to_vec()).unwrap();
        let frame: Value = serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap();
        frame["choices"][0]["delta"].clone()
    });
    frames.collect()
}
