//! The public API as JSON: requests, responses, stream events and errors of chat completions and `/v1/responses`.
//!
//! A body that cannot be read is refused with the field at fault and the reason. A provider's stream that breaks the
//! contract ends in an error event; nothing of it reaches the client as it was sent.
//!
//! It may use `routing`, `catalog` and `base`.

mod body;
pub mod chat;
pub mod depth;
pub mod error;
mod integer;
pub mod json_text;
pub mod json_writer;
pub mod model;
pub mod part;
mod pricing;
pub mod responses;
pub mod stream_normalizer;
pub mod stream_writer;
mod string_list;
mod tool_calls;

pub use body::in_json_terms;
pub use pricing::Pricing;
