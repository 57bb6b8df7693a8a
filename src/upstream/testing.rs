//! Helpers shared by the adapters' tests: fixtures, and the way from a caller's body to a call and from a provider's
//! bytes to the frames sent to the caller.

use std::{collections::VecDeque, fs, path::Path};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    reason::{self, Redactor},
    sse::SseReader,
    stream::{AfterEvent, Framing, Translator},
};
use crate::{
    base::money::NanoUsd,
    catalog::Catalog,
    config::{Dialect, ProviderKind, Quirks, RemoteProvider, Reuse, Timeouts},
    prompt::{self, Additions, ChatCall, Route},
    wire::{
        chat::{Bill, ChatRequest, Frames, ShowUsage, Usage},
        error::UpstreamError,
        part::Part,
        stream_normalizer::StreamNormalizer,
    },
};

pub(crate) const MODEL: &str = "svc-native-fast";

/// Calls `check` with the name and content of each fixture of an adapter. Snapshots are stored beside the fixtures.
///
/// Panics if a snapshot has no fixture.
pub(crate) fn for_each_fixture(adapter: &str, folder: &str, check: impl Fn(&str, &[u8])) {
    let upstream = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/upstream");
    let folder = upstream.join(adapter).join("fixtures").join(folder);
    let files = fs::read_dir(&folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let (snapshots, examples): (Vec<_>, Vec<_>) = files
        .iter()
        .partition(|file| file.extension().is_some_and(|kind| kind == "snap"));
    assert!(!examples.is_empty(), "{} is empty", folder.display());
    for snapshot in snapshots {
        let mut names = examples.iter().map(|example| example.file_stem());
        let known = names.any(|name| name == snapshot.file_stem());
        assert!(known, "{} has no fixture", snapshot.display());
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_snapshot_path(&folder);
    for example in examples {
        let name = example.file_stem().unwrap().to_str().unwrap();
        settings.bind(|| check(name, &fs::read(example).unwrap()));
    }
}

/// Parses a caller's body into a call.
pub(crate) fn call(body: &[u8]) -> ChatCall {
    let mut request = ChatRequest::parse(body).unwrap();
    let model = Catalog::built_in().find(&request.model).unwrap().clone();
    let route = Route::to(model);
    let settings = std::mem::take(&mut request.sampling);
    let settings = settings.checked(|parameter| route.drops(parameter));
    *prompt::prepare(
        request,
        settings.unwrap(),
        route,
        Additions::default(),
        "acct_1",
    )
    .unwrap()
}

/// The parts of a stream that arrives in these pieces, and the error that ended it, if any.
pub(crate) fn parts<'a>(
    translator: impl Translator,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Part>, Option<UpstreamError>) {
    framed_parts::<SseReader>(translator, pieces)
}

/// Like [`parts`], of a stream with this framing.
pub(crate) fn framed_parts<'a, F: Framing>(
    mut translator: impl Translator,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Part>, Option<UpstreamError>) {
    let (mut framing, mut parts) = (F::default(), VecDeque::new());
    for piece in pieces {
        framing.push(piece);
        loop {
            let data = match framing.next_event() {
                Ok(Some(data)) => data,
                Ok(None) => break,
                Err(error) => return (parts.into(), Some(error)),
            };
            match translator.on_event(&data, &mut parts) {
                Ok(AfterEvent::Continue) => {}
                Ok(AfterEvent::End) => return (parts.into(), None),
                Err(error) => return (parts.into(), Some(error)),
            }
        }
    }
    // A last event without its blank line is read too, if it can be parsed.
    if let Some(data) = framing.finish() {
        let _ = translator.on_event(&data, &mut parts);
    }
    (parts.into(), None)
}

/// What the operator and the caller learn of a failure.
pub(crate) fn failure(error: &UpstreamError) -> Value {
    json!({ "failure": error.to_string(), "shown to the caller": error.public_message() })
}

/// The failure that a fixture stands for: an error body whose file name begins with the status.
pub(crate) fn refusal(name: &str, body: &[u8], redactor: &Redactor, model: &str) -> Value {
    let status = name.split('_').next().unwrap().parse().unwrap();
    failure(&UpstreamError::Status {
        status,
        reason: redactor.public_reason(status, body, model, MODEL),
        retry_after: None,
        about_us: reason::is_operators_fault(body),
    })
}

/// A provider without a key.
pub(crate) fn provider(kind: ProviderKind, base_url: &str) -> RemoteProvider {
    RemoteProvider {
        kind,
        dialect: Dialect::default(),
        betas: Vec::new(),
        base_url: base_url.into(),
        api_keys: Vec::new(),
        identity: None,
        timeouts: Timeouts::default(),
        reuse: Reuse::Pooled,
        quirks: Quirks::default(),
    }
}

/// A bill with these token counts and no cost, which adapters do not compute.
pub(crate) fn bill(usage: Usage) -> Bill {
    let cost = NanoUsd::default();
    Bill { usage, cost }
}

/// The frames that a caller gets for these parts, and the error that ended them, if any.
pub(crate) fn frames(
    (parts, failed): (Vec<Part>, Option<UpstreamError>),
    n: u32,
) -> (Vec<String>, Option<String>) {
    let usage = ShowUsage {
        at_all: true,
        cached: true,
    };
    let mut shape = StreamNormalizer::new(Frames::new("[id]", 1, MODEL, usage), n);
    let read = parts.into_iter().try_for_each(|part| shape.on_part(part));
    let read = read.and(failed.map_or(Ok(()), Err));
    let ended = read.and_then(|()| shape.close());
    if ended.is_ok() {
        shape.bill(shape.usage().map(bill));
        shape.end();
    }
    let frames = shape.take_ready();
    let frames = frames.map(|frame| String::from_utf8(frame.to_vec()).unwrap());
    (frames.collect(), ended.err().map(|error| error.to_string()))
}

/// Lists the frames, one per line, without the fields that are equal in all of them; the failure comes last.
pub(crate) fn frame_list((frames, failure): (Vec<String>, Option<String>)) -> String {
    let common =
        format!(r#""id":"[id]","object":"chat.completion.chunk","created":1,"model":"{MODEL}","#);
    let mut shown = frames.concat().replace(&common, "").replace("\n\n", "\n");
    if let Some(failure) = failure {
        shown.extend(["failure: ", &failure, "\n"]);
    }
    with_numbered_ids(&shown)
}

/// Replaces random call IDs by `call_1`, `call_2`, …
pub(crate) fn with_numbered_ids(text: &str) -> String {
    let mut pieces = text.split("call_");
    let mut numbered = pieces.next().unwrap().to_owned();
    let mut ids = Vec::new();
    for piece in pieces {
        let random = |id: &&str| id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let Some(id) = piece.get(..24).filter(random) else {
            numbered.extend(["call_", piece]);
            continue;
        };
        let known = ids.iter().position(|known| *known == id);
        let number = known.unwrap_or_else(|| {
            ids.push(id);
            ids.len() - 1
        });
        numbered.extend(["call_", &(number + 1).to_string(), &piece[24..]]);
    }
    numbered
}

/// Splits the bytes at `cuts`.
pub(crate) fn pieces<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let pieces = starts.zip(&ends).map(|(start, end)| &bytes[start..*end]);
    pieces.collect()
}

/// Assembles a response from streamed frames, as clients do.
pub(crate) fn assembled(frames: &[String]) -> Value {
    let (mut content, mut calls) = (String::new(), Vec::<Value>::new());
    let (mut finish, mut usage) = (Value::Null, Value::Null);
    for frame in frames {
        let Ok(chunk) = serde_json::from_str::<Value>(frame["data: ".len()..].trim()) else {
            continue; // [DONE]
        };
        if let Some(counts) = chunk.get("usage") {
            usage = counts.clone();
            continue;
        }
        let choice = &chunk["choices"][0];
        content.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        let fragments = choice["delta"]["tool_calls"].as_array();
        for fragment in fragments.into_iter().flatten() {
            let arguments = fragment["function"]["arguments"].as_str().unwrap();
            if let Some(name) = fragment["function"].get("name") {
                calls.push(json!({ "name": name, "arguments": arguments }));
                continue;
            }
            let call = &mut calls[usize::try_from(fragment["index"].as_u64().unwrap()).unwrap()];
            let so_far = call["arguments"].as_str().unwrap();
            call["arguments"] = format!("{so_far}{arguments}").into();
        }
        if !choice["finish_reason"].is_null() {
            finish = choice["finish_reason"].clone();
        }
    }
    json!({ "content": content, "calls": calls, "finish": finish, "usage": usage })
}

/// Converts a whole response into the form that [`assembled`] returns.
pub(crate) fn flattened(answer: &Value) -> Value {
    let choice = &answer["choices"][0];
    let calls = choice["message"]["tool_calls"].as_array();
    let calls = calls.into_iter().flatten();
    let calls: Vec<_> = calls.map(|call| call["function"].clone()).collect();
    let content = choice["message"]["content"].as_str().unwrap_or_default();
    json!({ "content": content, "calls": calls, "finish": choice["finish_reason"],
        "usage": answer["usage"] })
}

pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-zü😀\"\\\\\n ]{0,12}",
        1 => Just(String::new()),
        1 => Just(" \n\t".to_owned()),
        1 => Just("\u{0}\u{2028}".to_owned()),
    ]
}

pub(crate) fn arguments() -> impl Strategy<Value = Value> {
    let value = prop_oneof![
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
        Just(json!([null, { "deep": [true] }])),
    ];
    let object = prop::collection::vec(("[a-z]{1,4}", value), 0..4);
    object.prop_map(|fields| Value::Object(fields.into_iter().collect()))
}
