//! Examples in `fixtures/`, each beside what becomes of it: a server's quirk is a new file, and a
//! difference to read.

use serde_json::{Value, json};

use super::{UPSTREAM_MODEL, answer, frames, quirks, sent, shown};
use crate::{
    upstream::{
        reason::{self, Cleaner},
        testing::{self, MODEL, listed, numbered},
    },
    wire::error::UpstreamError,
};

fn each(folder: &str, check: impl Fn(&str, &[u8])) {
    testing::each("openai", folder, check);
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

/// How many choices were asked for, which an answer does not say.
fn choices(name: &str) -> u32 {
    if name.starts_with("two_choices") {
        2
    } else {
        1
    }
}

fn failure(error: &UpstreamError) -> Value {
    json!({ "failure": error.to_string(), "told the caller": error.public_message() })
}

/// A chat request → the body that goes upstream. `upstream`, which is not part of a request, says
/// what is known of the server.
#[test]
fn requests() {
    each("requests", |name, chat| {
        let body: Value = serde_json::from_slice(chat).unwrap();
        let sent = sent(chat, &quirks(&body["upstream"]));
        insta::assert_snapshot!(name, pretty(&sent));
    });
}

/// A server's answer → ours, or how it failed.
#[test]
fn answers() {
    each("answers", |name, body| {
        let answer = answer::read(body, choices(name));
        let shown = answer.map_or_else(|error| failure(&error), |answer| shown(&answer));
        insta::assert_snapshot!(name, numbered(&pretty(&shown)));
    });
}

/// A server's stream → our frames, and how it failed if it did.
#[test]
fn streams() {
    each("streams", |name, stream| {
        insta::assert_snapshot!(name, listed(frames(stream, choices(name))));
    });
}

/// The body of a refusal → what the caller is told. The status is the first word of the name.
#[test]
fn errors() {
    let cleaner = Cleaner::new("https://api.acme.com/v1", &[]);
    each("errors", |name, body| {
        let status = name.split('_').next().unwrap().parse().unwrap();
        let error = UpstreamError::Status {
            status,
            reason: cleaner.for_caller(status, body, UPSTREAM_MODEL, MODEL),
            retry_after: None,
            about_us: reason::is_about_us(body),
        };
        insta::assert_snapshot!(name, pretty(&failure(&error)));
    });
}
