//! Discards request bodies that no handler reads.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::Bytes;
use http_body_util::BodyExt as _;

/// Longest time for which a discarded body is read.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of a discarded body that are read.
const MAX_BYTES: usize = 64 << 20;

/// Reads and discards a request body, within bounds, while the response goes out.
///
/// If a connection is closed with unread bytes, the kernel resets it, and the reset can arrive before the response
/// with the error.
pub(crate) fn drain_unread(mut body: Body) {
    if body.is_end_stream() {
        return;
    }
    tokio::spawn(tokio::time::timeout(TIMEOUT, async move {
        let mut drained = 0;
        while let Some(Ok(frame)) = body.frame().await {
            drained += frame.data_ref().map_or(0, Bytes::len);
            if drained > MAX_BYTES {
                break;
            }
        }
    }));
}
