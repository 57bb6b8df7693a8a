//! Golden files: a quirk is a new file in `fixtures/`, and its snapshot a diff to read.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{parts, sent};
use crate::{
    error::UpstreamError,
    metered::Shape,
    upstream::anthropic::answer,
    wire::chat::{Answer, Frames},
};

const MODEL: &str = "svc-native-fast";

/// Hands each fixture of a folder to `check`, with snapshots beside the fixtures.
fn each(folder: &str, check: impl Fn(&str, &[u8])) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/upstream/anthropic/fixtures");
    let files = fs::read_dir(root.join(folder)).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|kind| kind != "snap"));
    paths.sort();
    assert!(paths.len() > 10, "{folder} has its fixtures");
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_snapshot_path(root.join(folder));
    for path in paths {
        let name = path.file_stem().unwrap().to_str().unwrap();
        settings.bind(|| check(name, &fs::read(&path).unwrap()));
    }
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

/// An answer as the caller gets it; without usage there is none to give, which is shown as null.
fn shown(answer: &Answer) -> Value {
    let usage = answer.usage.unwrap_or_default();
    let body = answer.to_json("[id]", 1, MODEL, usage, true);
    let mut shown: Value = serde_json::from_slice(&body).unwrap();
    if answer.usage.is_none() {
        shown["usage"] = Value::Null;
    }
    shown
}

fn failure(error: &UpstreamError) -> Value {
    json!({ "failure": error.to_string(), "told the caller": error.public_message() })
}

/// The frames of a stream as the caller gets them, one a line, and the failure that ends them.
fn frames(stream: &[u8]) -> String {
    let mut shape = Shape::new(Frames::new("[id]", 1, MODEL), 1);
    let (parts, failed) = parts([stream]);
    let read = parts.into_iter().try_for_each(|part| shape.on_part(part));
    let read = read.and(failed.map_or(Ok(()), Err));
    let ended = read.and_then(|()| shape.on_end(true, true));
    let mut lines: Vec<_> = shape
        .take_ready()
        .map(|frame| String::from_utf8(frame.to_vec()).unwrap())
        .map(|frame| frame.trim_end().to_owned())
        .collect();
    lines.extend(ended.err().map(|error| format!("failure: {error}")));
    lines.join("\n")
}
