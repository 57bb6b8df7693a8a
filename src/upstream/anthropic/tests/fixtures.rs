//! Golden files: a quirk is a new file in `fixtures/`, and its snapshot a diff to read.

use serde_json::{Value, json};

use super::{parts, sent};
use crate::{
    upstream::{
        anthropic::answer,
        testing::{self, MODEL},
    },
    wire::{chat::Answer, error::UpstreamError},
};

fn each(folder: &str, check: impl Fn(&str, &[u8])) {
    testing::each("anthropic", folder, check);
}

#[test]
fn requests() {
    each("requests", |name, chat| {
        insta::assert_json_snapshot!(name, sent(chat));
    });
}

#[test]
fn answers() {
    each("answers", |name, message| {
        let shown = answer::read(message).map_or_else(|error| failure(&error), |read| shown(&read));
        insta::assert_json_snapshot!(name, shown);
    });
}

#[test]
fn streams() {
    each("streams", |name, stream| {
        insta::assert_snapshot!(name, frames(stream));
    });
}

/// An answer as the caller gets it. That it has no usage is shown as null.
fn shown(answer: &Answer) -> Value {
    let bill = answer.usage.map(testing::bill);
    let body = answer.to_json("[id]", 1, MODEL, bill, true);
    let mut shown: Value = serde_json::from_slice(&body).unwrap();
    if bill.is_none() {
        shown["usage"] = Value::Null;
    }
    shown
}

fn failure(error: &UpstreamError) -> Value {
    json!({ "failure": error.to_string(), "told the caller": error.public_message() })
}

/// The frames of a stream as the caller gets them, one a line, and the failure that ends them.
fn frames(stream: &[u8]) -> String {
    let (frames, failure) = testing::frames(parts([stream]), 1);
    let lines = frames.iter().map(|frame| frame.trim_end().to_owned());
    let failure = failure.map(|failure| format!("failure: {failure}"));
    lines.chain(failure).collect::<Vec<_>>().join("\n")
}
