//! Snapshot tests of the files in `fixtures/`. A new quirk of Gemini is a new file.

use serde_json::Value;

use super::{answer, frames, request};
use crate::{
    config::ProviderKind,
    upstream::{
        gemini::{VENDOR_NAMES, call_cache::CallCache},
        reason::Redactor,
        testing::{self, frame_list, refusal, with_numbered_ids},
    },
};

fn each(folder: &str, check: impl Fn(&str, &[u8])) {
    testing::for_each_fixture("gemini", folder, check);
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

/// A chat request → the body for `generateContent`. The extra field `upstream_model` names the model.
#[test]
fn requests() {
    each("requests", |name, chat| {
        let body: Value = serde_json::from_slice(chat).unwrap();
        let model = body["upstream_model"].as_str().unwrap_or("gemini-3-flash");
        let body = request(&body, model, &CallCache::default());
        insta::assert_snapshot!(name, pretty(&body));
    });
}

/// A response of Gemini → the caller's, or the failure.
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
        insta::assert_snapshot!(name, with_numbered_ids(&shown));
    });
}

/// A stream of Gemini → the caller's frames, and the failure, if any.
#[test]
fn streams() {
    each("streams", |name, stream| {
        let two = stream.windows(9).any(|bytes| bytes == b"\"index\":1");
        let n = if two { 2 } else { 1 };
        insta::assert_snapshot!(name, frame_list(frames(&[stream], n)));
    });
}

/// An error body of Vertex AI → the failure. The file name begins with the status.
#[test]
fn errors() {
    let url = "https://europe-west4-aiplatform.googleapis.com/v1/projects/my-project-4711/locations/europe-west4";
    let mut redactor = Redactor::new(&testing::provider(ProviderKind::Gemini, url));
    redactor.redact_also(VENDOR_NAMES);
    each("errors", |name, body| {
        let shown = refusal(name, body, &redactor, "gemini-2.5-flash");
        insta::assert_snapshot!(name, pretty(&shown));
    });
}
