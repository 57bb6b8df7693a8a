//! Examples in `fixtures/`, each beside what becomes of it: a quirk of Gemini's is a new file, and
//! a difference to read.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{answer, frames, numbered, request};
use crate::upstream::gemini::calls::Calls;

/// The folder's examples, by name. A snapshot whose example has gone is a mistake.
fn examples(folder: &str, extension: &str) -> (PathBuf, Vec<(String, String)>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/upstream/gemini/fixtures")
        .join(folder);
    let files = std::fs::read_dir(&folder).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut examples = Vec::new();
    for file in &files {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        if file.extension().unwrap() == extension {
            examples.push((name, std::fs::read_to_string(file).unwrap()));
        } else {
            let example = file.with_extension(extension);
            assert!(example.exists(), "{} is left over", file.display());
        }
    }
    assert!(!examples.is_empty());
    (folder, examples)
}

fn check(folder: &Path, name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

/// A chat request → the body for `generateContent`. `upstream_model`, which is not part of a
/// request, says for which model.
#[test]
fn requests() {
    let (folder, examples) = examples("requests", "json");
    for (name, text) in examples {
        let body: Value = serde_json::from_str(&text).unwrap();
        let model = body["upstream_model"].as_str().unwrap_or("gemini-3-flash");
        let body = request(&body, model, &Calls::default());
        check(&folder, &name, &pretty(&body));
    }
}

/// An answer of Gemini's → ours, or how it failed.
#[test]
fn answers() {
    let (folder, examples) = examples("answers", "json");
    for (name, text) in examples {
        let body: Value = serde_json::from_str(&text).unwrap();
        let n = body["candidates"].as_array().map_or(1, Vec::len).max(1);
        let answer = answer(text.as_bytes(), u32::try_from(n).unwrap());
        let shown = answer.map_or_else(
            |failure| format!("failure: {failure}"),
            |answer| pretty(&answer),
        );
        check(&folder, &name, &numbered(&shown));
    }
}

/// A stream of Gemini's → our frames, and how it failed if it did.
#[test]
fn streams() {
    let (folder, examples) = examples("streams", "sse");
    for (name, text) in examples {
        let n = if text.contains("\"index\":1") { 2 } else { 1 };
        let (frames, failure) = frames(text.as_bytes(), n, &[]);
        let same = r#""id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"svc-native-fast","#;
        let mut shown = frames.concat().replace(same, "").replace("\n\n", "\n");
        if let Some(failure) = failure {
            shown.extend(["failure: ", &failure, "\n"]);
        }
        check(&folder, &name, &numbered(&shown));
    }
}
