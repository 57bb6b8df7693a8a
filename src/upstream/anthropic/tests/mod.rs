//! Tests of the translation in both directions: fixtures with snapshots, and properties.

mod answers;
mod conversations;
mod fixtures;

use serde_json::Value;

use super::{events::EventTranslator, request};
use crate::{
    upstream::testing::{self, call},
    wire::{error::UpstreamError, messages::Naming, part::Part},
};

/// The body sent upstream, for a caller's body.
fn upstream_body(body: &[u8]) -> Value {
    let call = call(body);
    let written = request::write(&call, Naming::Model("vendor-model-9"), call.stream);
    serde_json::from_slice(&written).unwrap()
}

/// The parts of a stream that arrives in these pieces, and the error that ended it, if any.
fn parts<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Part>, Option<UpstreamError>) {
    testing::parts(EventTranslator::default(), pieces)
}
