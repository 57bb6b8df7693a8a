//! The JSON that crosses the network on the public side.

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
pub mod script;
pub mod shape;
mod tool_calls;
mod words;

pub use body::in_words_of_json;
pub use pricing::Pricing;
