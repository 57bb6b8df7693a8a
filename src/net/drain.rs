//! Request bodies that are discarded.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::Bytes;
use http_body_util::BodyExt as _;

/// How long a discarded body is read at most.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How much of it is read at most.
const MAX_BYTES: usize = 64 << 20;

/// Reads and discards a request body, within bounds, while the response goes out.
///
/// A connection closed on unread bytes is reset, and the reset can overtake the response that says
/// why.
pub fn drain_unread(mut body: Body) {
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
