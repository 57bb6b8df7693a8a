//! The body of a streamed response: frames as they arrive, comments while there are none.
//!
//! If the task of the call dies, the stream ends with an error event and without `[DONE]`.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, HttpBody},
    http::{HeaderValue, header},
    response::Response,
};
use bytes::Bytes;
use tokio::{
    sync::mpsc,
    time::{Instant, Sleep},
};

use crate::{
    api::access_log::RequestLog,
    metered::{Ending, ErrorWriter, Frame},
    wire::error::GatewayError,
};

/// Time without a frame after which a comment is sent, which clients ignore.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The response that starts a stream; how it ends is added to the log.
pub(crate) fn response(
    frames: mpsc::Receiver<Frame>,
    log: RequestLog,
    error_writer: ErrorWriter,
) -> Response {
    let body = FrameBody {
        frames,
        log,
        error_writer,
        sent: 0,
        keep_alive: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
        is_active: false,
        ended: false,
    };
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that buffer small writes would delay the stream until its end.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct FrameBody {
    frames: mpsc::Receiver<Frame>,
    log: RequestLog,
    /// Writes the error event if the task of the call has died.
    error_writer: ErrorWriter,
    /// Number of frames sent, for the sequence number of an error event.
    sent: u64,
    keep_alive: Pin<Box<Sleep>>,
    /// Whether a frame was sent since the timer was set.
    is_active: bool,
    ended: bool,
}

impl FrameBody {
    /// Ready when no frame was sent for at least [`KEEP_ALIVE`], which is shorter than the timeouts of proxies.
    /// Resetting the timer for each frame would cost more than the frame, so it is reset only when it has fired.
    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.keep_alive.as_mut().poll(context));
            self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
            if !std::mem::take(&mut self.is_active) {
                return Poll::Ready(());
            }
        }
    }
}

impl HttpBody for FrameBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let Poll::Ready(frame) = self.frames.poll_recv(context) else {
            ready!(self.poll_silence(context));
            let comment = Bytes::from_static(b": keep-alive\n\n");
            return Poll::Ready(Some(Ok(hyper::body::Frame::data(comment))));
        };
        self.is_active = true;
        let data = match frame {
            Some(Frame::Data(data)) => {
                self.sent += 1;
                data
            }
            Some(Frame::End(ending)) => {
                self.log.ended(ending);
                self.ended = true;
                return Poll::Ready(None);
            }
            // The task ended without an `End` frame: it panicked. Sends an error event and no `[DONE]`.
            None => {
                let cause = "the task of the call died".to_owned();
                self.log.ended(Ending::Interrupted { cause });
                self.ended = true;
                (self.error_writer)(&GatewayError::Internal.envelope(), self.sent)
            }
        };
        Poll::Ready(Some(Ok(hyper::body::Frame::data(data))))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::wire::{chat::Frames, responses::error_event};

    async fn text_of(frames: Vec<Frame>, error_writer: ErrorWriter) -> String {
        let (sender, receiver) = mpsc::channel(8);
        for frame in frames {
            sender.try_send(frame).ok().unwrap();
        }
        drop(sender);
        let body = response(receiver, RequestLog::default(), error_writer).into_body();
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_stream_whose_task_died_ends_with_an_error() {
        let data = || Frame::Data(Bytes::from_static(b"data: 1\n\n"));
        let end = Frame::End(Ending::Finished { usage: None });
        let whole = text_of(vec![data(), end], |envelope, _| Frames::error(envelope)).await;
        assert_eq!(whole, "data: 1\n\n");
        let cut = text_of(vec![data()], |envelope, _| Frames::error(envelope)).await;
        let error = cut.strip_prefix("data: 1\n\ndata: ").unwrap();
        let error: serde_json::Value = serde_json::from_str(error).unwrap();
        assert_eq!(error["error"]["code"], "internal_error");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_without_frames_sends_comments() {
        let (sender, receiver) = mpsc::channel(8);
        let started = Instant::now();
        let body = response(receiver, RequestLog::default(), |envelope, _| {
            Frames::error(envelope)
        })
        .into_body();
        let reading = tokio::spawn(async { body.collect().await.unwrap().to_bytes() });
        let data = || Frame::Data(Bytes::from_static(b"data: 1\n\n"));
        tokio::time::sleep(Duration::from_secs(10)).await;
        sender.send(data()).await.ok().unwrap();
        // A frame at 10 s: the first comment comes between 25 and 40 s.
        tokio::time::sleep(Duration::from_secs(31)).await;
        sender.send(data()).await.ok().unwrap();
        let end = Frame::End(Ending::Finished { usage: None });
        sender.send(end).await.ok().unwrap();
        let read = String::from_utf8(reading.await.unwrap().to_vec()).unwrap();
        assert_eq!(read, "data: 1\n\n: keep-alive\n\ndata: 1\n\n");
        assert!(started.elapsed() < Duration::from_secs(45));
    }

    #[tokio::test]
    async fn a_responses_stream_whose_task_died_ends_with_its_error_event() {
        let error_writer: ErrorWriter = error_event;
        let cut = text_of(Vec::new(), error_writer).await;
        let error = cut.strip_prefix("event: error\ndata: ").unwrap();
        let error: serde_json::Value = serde_json::from_str(error).unwrap();
        assert_eq!(error["type"], "error");
        assert_eq!(error["sequence_number"], 0);
        assert_eq!(error["code"], "internal_error");
        assert_eq!(error["error"]["type"], "server_error");
    }
}
