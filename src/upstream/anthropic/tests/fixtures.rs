//! Snapshot tests of the files in `fixtures/`. A new quirk of the API is a new file.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{parts, upstream_body};
use crate::{
    config::ProviderKind,
    upstream::{
        anthropic::{BedrockFrames, VENDOR_NAMES, answer, events::EventTranslator},
        eventstream,
        reason::Redactor,
        testing::{self, MODEL, failure, refusal},
    },
    wire::{chat::Answer, error::UpstreamError, part::Part},
};

fn each(folder: &str, check: impl Fn(&str, &[u8])) {
    testing::for_each_fixture("anthropic", folder, check);
}

#[test]
fn requests() {
    each("requests", |name, chat| {
        insta::assert_json_snapshot!(name, upstream_body(chat));
    });
}

#[test]
fn answers() {
    each("answers", |name, message| {
        let shown =
            answer::read(message).map_or_else(|error| failure(&error), |read| caller_json(&read));
        insta::assert_json_snapshot!(name, shown);
    });
}

#[test]
fn streams() {
    each("streams", |name, stream| {
        insta::assert_snapshot!(name, frames(parts([stream])));
    });
}

/// The fixtures have a message in each line, because the streams are binary.
#[test]
fn bedrock_streams() {
    each("bedrock_streams", |name, lines| {
        let lines = str::from_utf8(lines).unwrap().lines();
        let stream: Vec<u8> = lines.flat_map(bedrock_message).collect();
        let pieces = stream.chunks(97);
        let parts = testing::framed_parts::<BedrockFrames>(EventTranslator::default(), pieces);
        insta::assert_snapshot!(name, frames(parts));
    });
}

/// An error body of Bedrock → the failure. The file name begins with the status.
#[test]
fn bedrock_errors() {
    let url = "https://bedrock-runtime.eu-central-1.amazonaws.com";
    let mut redactor = Redactor::new(&testing::provider(ProviderKind::Anthropic, url));
    redactor.redact_also(&VENDOR_NAMES);
    let model = "anthropic.claude-sonnet-4-5-20250929-v1:0";
    each("bedrock_errors", |name, body| {
        insta::assert_json_snapshot!(name, refusal(name, body, &redactor, model));
    });
}

/// A response as the caller gets it, with a null `usage` if there is none.
fn caller_json(answer: &Answer) -> Value {
    let bill = answer.usage.map(testing::bill);
    let body = answer.to_json("[id]", 1, MODEL, bill, true);
    let mut shown: Value = serde_json::from_slice(&body).unwrap();
    if bill.is_none() {
        shown["usage"] = Value::Null;
    }
    shown
}

/// The frames of a stream as the caller gets them, one per line, and the failure, if any.
fn frames(parts: (Vec<Part>, Option<UpstreamError>)) -> String {
    let (frames, failure) = testing::frames(parts, 1);
    let lines = frames.iter().map(|frame| frame.trim_end().to_owned());
    let failure = failure.map(|failure| format!("failure: {failure}"));
    lines.chain(failure).collect::<Vec<_>>().join("\n")
}

/// A message of a stream of Bedrock, written in a line of a fixture: an event, or an exception.
fn bedrock_message(line: &str) -> Vec<u8> {
    let written: Value = serde_json::from_str(line).unwrap();
    if let Some(event) = written.get("chunk") {
        let bytes = STANDARD.encode(event.to_string());
        let payload = json!({ "bytes": bytes, "p": "abcdef" }).to_string();
        let headers = [(":message-type", "event"), (":event-type", "chunk")];
        return eventstream::write(&headers, payload.as_bytes());
    }
    let name = written["exception"].as_str().unwrap();
    let headers = [(":message-type", "exception"), (":exception-type", name)];
    eventstream::write(&headers, written["payload"].to_string().as_bytes())
}
