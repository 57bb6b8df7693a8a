//! A provider's response: its head, and a body that is read on demand, within timeouts and size limits.

use std::{sync::Arc, time::Duration};

use axum::http::StatusCode;
use bytes::Bytes;
use tokio::time::Instant;

use super::model_reader::ModelReader;
use crate::{
    net::{
        http1::client::{Connection, Pool},
        timeout::{DeadlineExceeded, with_deadline},
    },
    wire::error::UpstreamError,
};

/// Size limit of a response body that is read whole.
const MAX_BODY_BYTES: usize = 32 << 20;
/// Capacity limit of the buffers in which a body is collected.
const BUFFER_BYTES: usize = 1 << 20;
/// Size limit of an error body, which is read for its reason.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;
/// Timeout for reading an error body: the status is known already, so it is shorter than the usual timeouts.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// An HTTP response whose head was received; the body is read on demand.
///
/// When dropped, the connection returns to the pool if the body was read to its end, and is closed otherwise.
pub(crate) struct Response {
    pub status: StatusCode,
    pub content_type: String,
    pub(super) retry_after: Option<Duration>,
    /// The body, if it had to be read to see what is refused.
    pub(super) body: Option<Bytes>,
    /// `None` once the body was read to its end or reading failed.
    pub(super) connection: Option<Box<Connection>>,
    pub(super) pool: Arc<Pool>,
    pub(super) idle_timeout: Duration,
    /// What gets the model that the response names; `None` if no trace is recorded.
    pub model: Option<ModelReader>,
}

impl Response {
    /// The next bytes of the body, within the idle timeout; `None` at its end.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        self.next_chunk_within(self.idle_timeout).await
    }

    /// Like [`next_chunk`](Self::next_chunk), with another timeout.
    pub(crate) async fn next_chunk_within(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Bytes>, UpstreamError> {
        let Some(connection) = &mut self.connection else {
            return Ok(None);
        };
        let next = with_deadline(|| Instant::now() + timeout, connection.next()).await;
        let next = next.map_err(|DeadlineExceeded| UpstreamError::Idle(timeout))?;
        if !matches!(next, Ok(Some(_))) {
            self.release_connection();
        }
        next
    }

    /// Stops reading before the end of the body: the part that matters has been read.
    ///
    /// If only the end of the body is missing, it is awaited in the background, so that the connection can be reused.
    pub(crate) fn finish_early(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.skip_end();
            if connection.is_over() {
                self.pool.put(connection);
            } else {
                self.pool.put_after_end(connection);
            }
        }
    }

    /// Returns the connection to the pool, which drops it unless the body was read to its end.
    fn release_connection(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.skip_end();
            self.pool.put(connection);
        }
    }

    /// The whole body, which must not be labelled as HTML or as an event stream.
    ///
    /// Other content types are accepted, because some servers label JSON as text.
    pub(crate) async fn json(mut self) -> Result<Bytes, UpstreamError> {
        let kind = &self.content_type;
        if kind.starts_with("text/html") || kind.starts_with("text/event-stream") {
            let message = format!("a response of type {kind:?}");
            return Err(UpstreamError::Malformed(message));
        }
        let model = self.model.take();
        let body = self.body_up_to(MAX_BODY_BYTES).await?;
        if let Some(mut model) = model {
            model.read(&body);
        }
        Ok(body)
    }

    /// The body of a response with another status than 200; empty if it cannot be read in time.
    pub(super) async fn error_body(&mut self) -> Bytes {
        if let Some(body) = self.body.take() {
            return body;
        }
        let reading =
            tokio::time::timeout(ERROR_BODY_TIMEOUT, self.body_up_to(MAX_ERROR_BODY_BYTES));
        let body = reading.await.ok().and_then(Result::ok);
        // Without its end, the connection cannot be used again.
        self.release_connection();
        body.unwrap_or_default()
    }

    async fn body_up_to(&mut self, limit: usize) -> Result<Bytes, UpstreamError> {
        let first = self.next_chunk().await?.unwrap_or_default();
        // Several buffers, joined at the end: a growing buffer would be copied, and held twice, at every growth.
        let mut buffers: Vec<Vec<u8>> = Vec::new();
        let mut length = first.len();
        while let Some(data) = self.next_chunk().await? {
            length += data.len();
            if length > limit {
                return Err(UpstreamError::TooLarge(limit));
            }
            match buffers.last_mut() {
                Some(buffer) if buffer.capacity() - buffer.len() >= data.len() => {
                    buffer.extend_from_slice(&data);
                }
                _ => {
                    let mut buffer = Vec::with_capacity(data.len().max(length).min(BUFFER_BYTES));
                    buffer.extend_from_slice(&data);
                    buffers.push(buffer);
                }
            }
        }
        if length > limit {
            return Err(UpstreamError::TooLarge(limit));
        }
        // Most bodies arrive in one chunk, which is returned without a copy.
        if buffers.is_empty() {
            return Ok(first);
        }
        let mut whole = Vec::with_capacity(length);
        whole.extend_from_slice(&first);
        for buffer in &buffers {
            whole.extend_from_slice(buffer);
        }
        Ok(whole.into())
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        self.release_connection();
    }
}
