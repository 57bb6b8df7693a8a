//! HTTP/1: a server for clients of the gateway and a client for providers.
//!
//! `codec/` finds where messages begin and end; `server/` and `client/` do the I/O on top of it.
//!
//! The server refuses every request head that two implementations could read differently, with an error response and
//! a closed connection. The client returns an `UpstreamError` for a response that is malformed or cut off. A
//! connection is reused only if the end of the last message is known on both sides.
//!
//! It uses `lanes`, `shutdown`, `connect` and `read_buffer` of `net`, and `wire` for `UpstreamError`.

pub(crate) mod client;
pub(crate) mod codec;
mod refused;
pub(crate) mod server;

pub(crate) use codec::{MAX_HEAD_BYTES, MAX_HEADERS};
pub(crate) use refused::{REQUEST_ID, Refused};
