//! The body of a streamed response: frames as they arrive, comments or pings while there are none.
//!
//! If the task of the call dies, the stream ends with the events of a failure and without `[DONE]`.

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
use tokio::sync::mpsc;

use crate::{
    api::access_log::RequestLog,
    gateway::RequestPages,
    metered::{Ending, Facts, Frame},
    net::silence::Silence,
    wire::{error::GatewayError, stream_style::StreamStyle},
};

/// Time without a frame after which a comment or ping is sent. It is shorter than the timeouts of proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The response that starts a stream; how it ends is added to the log. An error event names a page of `pages`. `sent` events were sent in an earlier response.
pub(crate) fn response(
    frames: mpsc::Receiver<Frame>,
    (log, pages): (RequestLog, RequestPages),
    style: StreamStyle,
    sent: u64,
) -> Response {
    with_headers(Body::new(FrameBody {
        frames,
        log,
        pages,
        style,
        sent,
        silence: Silence::new(KEEP_ALIVE),
        ended: false,
    }))
}

/// A response with events.
pub(crate) fn with_headers(body: Body) -> Response {
    let mut response = Response::new(body);
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
    /// For the URL in an error event.
    pages: RequestPages,
    style: StreamStyle,
    /// Number of frames before, for the sequence number of an error event.
    sent: u64,
    silence: Silence,
    ended: bool,
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
            ready!(self.silence.poll(context));
            let keep_alive = Bytes::from_static(self.style.keep_alive);
            return Poll::Ready(Some(Ok(hyper::body::Frame::data(keep_alive))));
        };
        self.silence.broken();
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
            // The task ended without an `End` frame: it panicked.
            None => {
                let cause = "the task of the call died".to_owned();
                let facts = Facts::default();
                self.log.ended(Ending::Interrupted { cause, facts });
                self.ended = true;
                let request_id = self.log.request_id();
                let url = self.pages.url(&request_id);
                let envelope = GatewayError::Internal.envelope().with_request_url(url);
                self.style.error.write(&envelope, self.sent, &request_id)
            }
        };
        Poll::Ready(Some(Ok(hyper::body::Frame::data(data))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt as _;
    use serde_json::Value;
    use tokio::time::Instant;

    use super::*;
    use crate::{
        metered::Form,
        wire::{
            messages::NewMessage,
            responses::{NewResponse, ResponsesRequest},
            stream_style::ErrorWriter,
        },
    };

    async fn text_of(frames: Vec<Frame>, style: StreamStyle) -> String {
        let (sender, receiver) = mpsc::channel(8);
        for frame in frames {
            sender.try_send(frame).ok().unwrap();
        }
        drop(sender);
        let body = response(
            receiver,
            (RequestLog::default(), RequestPages::default()),
            style,
            0,
        )
        .into_body();
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_stream_whose_task_died_ends_with_an_error() {
        let data = || Frame::Data(Bytes::from_static(b"data: 1\n\n"));
        let end = Frame::End(Ending::Finished {
            usage: None,
            facts: Facts::default(),
        });
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
        let body = response(
            receiver,
            (RequestLog::default(), RequestPages::default()),
            style,
            0,
        )
        .into_body();
        let reading = tokio::spawn(async { body.collect().await.unwrap().to_bytes() });
        let data = || Frame::Data(Bytes::from_static(b"data: 1\n\n"));
        tokio::time::sleep(Duration::from_secs(10)).await;
        sender.send(data()).await.ok().unwrap();
        // A frame at 10 s: the first comment comes between 25 and 40 s.
        tokio::time::sleep(Duration::from_secs(31)).await;
        sender.send(data()).await.ok().unwrap();
        let end = Frame::End(Ending::Finished {
            usage: None,
            facts: Facts::default(),
        });
        sender.send(end).await.ok().unwrap();
        let read = String::from_utf8(reading.await.unwrap().to_vec()).unwrap();
        assert_eq!(read, "data: 1\n\n: keep-alive\n\ndata: 1\n\n");
        assert!(started.elapsed() < Duration::from_secs(45));
    }

    #[tokio::test]
    async fn a_responses_stream_whose_task_died_ends_with_its_failure() {
        let request = ResponsesRequest::parse(br#"{"model":"m","input":"Hi"}"#).unwrap();
        let new = NewResponse {
            id: "resp_1".into(),
            created_at: 1,
            echo: request.echo,
            names: request.names,
        };
        let style = StreamStyle {
            error: ErrorWriter::Response(Arc::new(new)),
            keep_alive: b"",
        };
        let cut = text_of(Vec::new(), style).await;
        let mut events = cut.split_terminator("\n\n");
        let mut next = |name: &str| -> Value {
            let head = format!("event: {name}\ndata: ");
            let event = events.next().unwrap();
            serde_json::from_str(event.strip_prefix(&head).unwrap()).unwrap()
        };
        let error = next("error");
        assert_eq!(error["type"], "error");
        assert_eq!(error["sequence_number"], 0);
        assert_eq!(error["code"], "internal_error");
        assert_eq!(error["error"]["type"], "server_error");
        let failed = next("response.failed");
        assert_eq!(failed["sequence_number"], 1);
        assert_eq!(failed["response"]["id"], "resp_1");
        assert_eq!(failed["response"]["status"], "failed");
        assert_eq!(failed["response"]["error"]["message"], error["message"]);
        assert_eq!(events.next(), None, "no [DONE]");
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
        let body = response(
            receiver,
            (RequestLog::default(), RequestPages::default()),
            messages_style(),
            0,
        )
        .into_body();
        let reading = tokio::spawn(async { body.collect().await.unwrap().to_bytes() });
        tokio::time::sleep(Duration::from_secs(16)).await;
        let end = Frame::End(Ending::Finished {
            usage: None,
            facts: Facts::default(),
        });
        sender.send(end).await.ok().unwrap();
        let read = String::from_utf8(reading.await.unwrap().to_vec()).unwrap();
        assert_eq!(read, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
    }
}
