//! The JSON that crosses the network on the public side.

mod body;
pub mod chat;
pub mod depth;
mod integer;
pub mod json_text;
pub mod json_writer;
pub mod model;
mod pricing;
pub mod responses;
pub mod script;
mod words;

pub use body::in_words_of_json;
pub use pricing::Pricing;
