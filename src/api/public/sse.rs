//! The body of a streamed response: frames as they arrive, comments or pings while there are none.
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
    metered::{Ending, Frame, StreamStyle},
    wire::error::GatewayError,
};

/// Time without a frame after which a comment or ping is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The response that starts a stream; how it ends is added to the log.
pub(crate) fn response(
    frames: mpsc::Receiver<Frame>,
    log: RequestLog,
    style: StreamStyle,
) -> Response {
    let body = FrameBody {
        frames,
        log,
        style,
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
    style: StreamStyle,
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
            let keep_alive = Bytes::from_static(self.style.keep_alive);
            return Poll::Ready(Some(Ok(hyper::body::Frame::data(keep_alive))));
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
                let envelope = GatewayError::Internal.envelope();
                (self.style.error)(&envelope, self.sent, &self.log.request_id())
            }
        };
        Poll::Ready(Some(Ok(hyper::body::Frame::data(data))))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::{
        metered::Form,
        wire::{messages::NewMessage, responses::error_event},
    };

    async fn text_of(frames: Vec<Frame>, style: StreamStyle) -> String {
        let (sender, receiver) = mpsc::channel(8);
        for frame in frames {
            sender.try_send(frame).ok().unwrap();
        }
        drop(sender);
        let body = response(receiver, RequestLog::default(), style).into_body();
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_stream_whose_task_died_ends_with_an_error() {
        let data = || Frame::Data(Bytes::from_static(b"data: 1\n\n"));
        let end = Frame::End(Ending::Finished { usage: None });
        let whole = text_of(vec![data(), end], Form::Chat.stream_style()).await;
        assert_eq!(whole, "data: 1\n\n");
        let cut = text_of(vec![data()], Form::Chat.stream_style()).await;
        let error = cut.strip_prefix("data: 1\n\ndata: ").unwrap();
        let error: serde_json::Value = serde_json::from_str(error).unwrap();
        assert_eq!(error["error"]["code"], "internal_error");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_without_frames_sends_comments() {
        let (sender, receiver) = mpsc::channel(8);
        let started = Instant::now();
        let style = Form::Chat.stream_style();
        let body = response(receiver, RequestLog::default(), style).into_body();
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
        let style = StreamStyle {
            error: |envelope, sequence, _| error_event(envelope, sequence),
            keep_alive: b"",
        };
        let cut = text_of(Vec::new(), style).await;
        let error = cut.strip_prefix("event: error\ndata: ").unwrap();
        let error: serde_json::Value = serde_json::from_str(error).unwrap();
        assert_eq!(error["type"], "error");
        assert_eq!(error["sequence_number"], 0);
        assert_eq!(error["code"], "internal_error");
        assert_eq!(error["error"]["type"], "server_error");
    }

    fn messages_style() -> StreamStyle {
        let message = NewMessage {
            id: "msg_1".into(),
            request_id: "req_1".into(),
            wants_edits: false,
        };
        Form::Messages(Box::new(message)).stream_style()
    }

    #[tokio::test]
    async fn a_message_whose_task_died_ends_with_its_error_event() {
        let cut = text_of(Vec::new(), messages_style()).await;
        let error = cut.strip_prefix("event: error\ndata: ").unwrap();
        let error: serde_json::Value = serde_json::from_str(error).unwrap();
        assert_eq!(error["type"], "error");
        assert_eq!(error["error"]["type"], "api_error");
        assert_eq!(error["error"]["details"]["error_code"], "internal_error");
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_without_frames_sends_pings() {
        let (sender, receiver) = mpsc::channel(8);
        let body = response(receiver, RequestLog::default(), messages_style()).into_body();
        let reading = tokio::spawn(async { body.collect().await.unwrap().to_bytes() });
        tokio::time::sleep(Duration::from_secs(16)).await;
        let end = Frame::End(Ending::Finished { usage: None });
        sender.send(end).await.ok().unwrap();
        let read = String::from_utf8(reading.await.unwrap().to_vec()).unwrap();
        assert_eq!(read, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
    }
}
