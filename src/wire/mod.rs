//! The JSON that crosses the network on the public side.

pub mod chat;
pub mod depth;
pub mod json_text;
pub mod model;
