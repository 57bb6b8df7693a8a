//! The translation as a whole: fixtures to read, and properties of any conversation.

mod answers;
mod conversations;
mod fixtures;

use serde_json::Value;

use super::{events::Messages, request};
use crate::{
    upstream::testing::{self, call},
    wire::{error::UpstreamError, part::Part},
};

/// The body that goes upstream for a caller's.
fn sent(body: &[u8]) -> Value {
    let call = call(body);
    let written = request::write(&call, "vendor-model-9", call.stream);
    serde_json::from_slice(&written).unwrap()
}

/// The parts of a stream that arrives in these pieces, and how it failed if it did.
fn parts<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Part>, Option<UpstreamError>) {
    testing::parts(Messages::default(), pieces)
}
