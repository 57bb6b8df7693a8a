//! The JSON that crosses the network on the public side.

mod body;
pub mod chat;
pub mod depth;
pub mod json_text;
pub mod json_writer;
pub mod model;
pub mod responses;
pub mod script;
