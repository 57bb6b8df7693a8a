//! Examples in `fixtures/`, each beside what becomes of it: a quirk of Gemini's is a new file, and
//! a difference to read.

use serde_json::Value;

use super::{answer, frames, request};
use crate::upstream::{
    gemini::calls::Calls,
    testing::{self, listed, numbered},
};

fn each(folder: &str, check: impl Fn(&str, &[u8])) {
    testing::each("gemini", folder, check);
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

/// A chat request → the body for `generateContent`. `upstream_model`, which is not part of a
/// request, says for which model.
#[test]
fn requests() {
    each("requests", |name, chat| {
        let body: Value = serde_json::from_slice(chat).unwrap();
        let model = body["upstream_model"].as_str().unwrap_or("gemini-3-flash");
        let body = request(&body, model, &Calls::default());
        insta::assert_snapshot!(name, pretty(&body));
    });
}

/// An answer of Gemini's → ours, or how it failed.
#[test]
fn answers() {
    each("answers", |name, text| {
        let body: Value = serde_json::from_slice(text).unwrap();
        let n = body["candidates"].as_array().map_or(1, Vec::len).max(1);
        let answer = answer(text, u32::try_from(n).unwrap());
        let shown = answer.map_or_else(
            |failure| format!("failure: {failure}"),
            |answer| pretty(&answer),
        );
        insta::assert_snapshot!(name, numbered(&shown));
    });
}

/// A stream of Gemini's → our frames, and how it failed if it did.
#[test]
fn streams() {
    each("streams", |name, stream| {
        let two = stream.windows(9).any(|bytes| bytes == b"\"index\":1");
        let n = if two { 2 } else { 1 };
        insta::assert_snapshot!(name, listed(frames(&[stream], n)));
    });
}
