//! HTTP/1.

mod body;
mod chunks;
pub mod client;
mod refused;
pub mod server;

pub use refused::{MAX_HEAD_BYTES, MAX_HEADERS, REQUEST_ID, Refused};
