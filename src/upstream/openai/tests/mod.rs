//! Tests of the translation in both directions: fixtures with snapshots, and properties.

mod golden;
mod properties;

use serde_json::Value;

use super::{answer, chunks::ChunkTranslator, request};
use crate::{
    config::{MaxTokensField, Quirks},
    upstream::testing,
    wire::{chat::Answer, error::UpstreamError, part::Part},
};

const UPSTREAM_MODEL: &str = "vendor-model-9";

/// The body sent to a server with these quirks, for a caller's body.
fn upstream_body(body: &[u8], quirks: &Quirks) -> Value {
    let call = testing::call(body);
    let written = request::write(&call, UPSTREAM_MODEL, call.stream, quirks);
    serde_json::from_slice(&written).unwrap()
}

/// The quirks of a fixture: those known of its `base_url`, and those it lists.
fn quirks(upstream: &Value) -> Quirks {
    let mut quirks = Quirks::for_base_url(upstream["base_url"].as_str().unwrap_or_default());
    let owned = |value: &Value| value.as_str().unwrap().to_owned();
    if upstream["max_tokens_field"] == "max_completion_tokens" {
        quirks.max_tokens_field = MaxTokensField::MaxCompletionTokens;
    }
    let omit = upstream["omit"].as_array().into_iter().flatten();
    quirks.omit.extend(omit.map(owned));
    let rename = upstream["rename"].as_object().into_iter().flatten();
    let rename = rename.map(|(from, to)| (from.clone(), owned(to)));
    quirks.rename.extend(rename);
    quirks
}

/// A response as the caller gets it, with a null `usage` if there is none.
fn caller_json(answer: &Answer) -> Value {
    let bill = answer.usage.map(testing::bill);
    let body = answer.to_json("[id]", 1, testing::MODEL, bill, true);
    let mut shown: Value = serde_json::from_slice(&body).unwrap();
    if bill.is_none() {
        shown["usage"] = Value::Null;
    }
    shown
}

/// The parts of a stream that arrives in these pieces, and the error that ended it, if any.
fn parts(pieces: &[&[u8]], n: u32) -> (Vec<Part>, Option<UpstreamError>) {
    testing::parts(ChunkTranslator::new(n), pieces.iter().copied())
}

/// The frames that a caller gets for a stream, and the error that ended it, if any.
fn frames(stream: &[u8], n: u32) -> (Vec<String>, Option<String>) {
    testing::frames(parts(&[stream], n), n)
}
