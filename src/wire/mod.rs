//! The public API as JSON: requests, responses, stream events and errors of chat completions, `/v1/responses` and
//! `/v1/messages`.
//!
//! A body that cannot be read is refused with the field at fault and the reason. A provider's stream that breaks the
//! contract ends in an error event; nothing of it reaches the client as it was sent.
//!
//! It may use `routing`, `catalog` and `base`.

pub(crate) mod agent;
mod body;
pub mod chat;
pub(crate) mod error;
mod integer;
pub(crate) mod json_text;
pub(crate) mod json_writer;
pub(crate) mod messages;
pub(crate) mod model;
pub(crate) mod part;
mod pricing;
pub(crate) mod responses;
pub(crate) mod shape;
pub(crate) mod stream_normalizer;
pub(crate) mod stream_style;
pub(crate) mod stream_writer;
mod string_list;
mod tool_calls;

pub(crate) use body::in_json_terms;
pub(crate) use pricing::Pricing;
