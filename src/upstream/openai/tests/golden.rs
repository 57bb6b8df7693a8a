//! Snapshot tests of the files in `fixtures/`. A new quirk of a server is a new file.

use serde_json::Value;

use super::{UPSTREAM_MODEL, answer, caller_json, frames, quirks, upstream_body};
use crate::upstream::{
    reason::Redactor,
    testing::{self, failure, frame_list, refusal, with_numbered_ids},
};

fn each(folder: &str, check: impl Fn(&str, &[u8])) {
    testing::for_each_fixture("openai", folder, check);
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

/// The number of requested choices, which a response does not contain.
fn choices(name: &str) -> u32 {
    if name.starts_with("two_choices") {
        2
    } else {
        1
    }
}

/// A chat request → the body sent upstream. The extra field `upstream` has the server's quirks.
#[test]
fn requests() {
    each("requests", |name, chat| {
        let body: Value = serde_json::from_slice(chat).unwrap();
        let sent = upstream_body(chat, &quirks(&body["upstream"]));
        insta::assert_snapshot!(name, pretty(&sent));
    });
}

/// A server's response → the caller's, or the failure.
#[test]
fn answers() {
    each("answers", |name, body| {
        let answer = answer::read(body, choices(name));
        let shown = answer.map_or_else(|error| failure(&error), |answer| caller_json(&answer));
        insta::assert_snapshot!(name, with_numbered_ids(&pretty(&shown)));
    });
}

/// A server's stream → the caller's frames, and the failure, if any.
#[test]
fn streams() {
    each("streams", |name, stream| {
        insta::assert_snapshot!(name, frame_list(frames(stream, choices(name))));
    });
}

/// An error body → the message for the caller. The file name begins with the status.
#[test]
fn errors() {
    let redactor = Redactor::with("https://api.acme.com/v1", []);
    each("errors", |name, body| {
        let shown = refusal(name, body, &redactor, UPSTREAM_MODEL);
        insta::assert_snapshot!(name, pretty(&shown));
    });
}
