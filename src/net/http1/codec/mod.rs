//! The HTTP/1 codec: where a message begins and ends, for both directions. It has no I/O.
//!
//! Bytes go in; heads, pieces of bodies and errors come out, and how the bytes were split makes no difference. The
//! server reads requests with it and the client reads responses; there is one decoder of chunks for both. An error
//! means that the start of the next message is unknown, so the connection must be closed.
//!
//! `differential.rs` compares it with hyper, and `fuzz/` feeds it mutations of recorded messages.

mod body;
mod chunks;
#[cfg(test)]
mod differential;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz_targets;
mod limits;
mod request_head;
mod requests;
mod response_head;
mod responses;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::chunks::Dialect;
pub(crate) use self::{
    body::{BodyFraming, Next as NextOfBody},
    limits::{MAX_HEAD_BYTES, MAX_HEADERS},
    request_head::{RequestHead, seen_header, seen_path},
    requests::{Broken, Next, RequestReader},
    response_head::{BadResponse, ResponseHead},
    responses::ResponseReader,
};
