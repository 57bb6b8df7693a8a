//! Snapshot tests of the files in `fixtures/`. A new quirk of the API is a new file.

use serde_json::{Value, json};

use super::{parts, upstream_body};
use crate::{
    upstream::{
        anthropic::answer,
        testing::{self, MODEL},
    },
    wire::{chat::Answer, error::UpstreamError},
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
        insta::assert_snapshot!(name, frames(stream));
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

fn failure(error: &UpstreamError) -> Value {
    json!({ "failure": error.to_string(), "shown to the caller": error.public_message() })
}

/// The frames of a stream as the caller gets them, one per line, and the failure, if any.
fn frames(stream: &[u8]) -> String {
    let (frames, failure) = testing::frames(parts([stream]), 1);
    let lines = frames.iter().map(|frame| frame.trim_end().to_owned());
    let failure = failure.map(|failure| format!("failure: {failure}"));
    lines.chain(failure).collect::<Vec<_>>().join("\n")
}
