//! The body of a request, as its frames arrive.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, HttpBody},
    http::{HeaderMap, Request, header},
};
use bytes::Bytes;
use h2::RecvStream;
use hyper::body::{Frame, SizeHint};

/// Turns the stream of a request into its body.
pub(super) fn with_body(request: Request<RecvStream>) -> Request<Body> {
    let (parts, stream) = request.into_parts();
    let body = if stream.is_end_stream() {
        Body::empty()
    } else {
        let left = content_length(&parts.headers);
        Body::new(RequestBody { stream, left })
    };
    Request::from_parts(parts, body)
}

/// `h2` has checked that it is a number, and resets a stream whose body has another length.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// Dropped before its end, it makes `h2` discard what still arrives, and end the stream after the response.
struct RequestBody {
    stream: RecvStream,
    /// Announced bytes that have not been read yet.
    left: Option<u64>,
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let Some(data) = ready!(self.stream.poll_data(context)) else {
            return Poll::Ready(None); // trailers are ignored
        };
        // A stream that the client reset has no end: its body is an error, so that it is not taken for a whole one.
        Poll::Ready(Some(data.and_then(|data| {
            self.stream.flow_control().release_capacity(data.len())?;
            if let Some(left) = &mut self.left {
                *left = left.saturating_sub(data.len() as u64);
            }
            Ok(Frame::data(data))
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
