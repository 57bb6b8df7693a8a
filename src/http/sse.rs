//! A streamed answer's body: frames as they come, and a word if they stop coming.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, HttpBody},
    http::{HeaderValue, header},
    response::Response,
};
use bytes::Bytes;
use tokio::sync::mpsc;

use super::access_log::RequestLog;
use crate::{
    error::GatewayError,
    metered::{Ending, Frame},
    wire::chat::Frames,
};

/// The 200 that opens a stream; the log is told how it went.
pub fn response(frames: mpsc::Receiver<Frame>, log: RequestLog) -> Response {
    let body = FrameBody {
        frames,
        log,
        over: false,
    };
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that collect small writes would turn a stream into one late answer.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct FrameBody {
    frames: mpsc::Receiver<Frame>,
    log: RequestLog,
    over: bool,
}

impl HttpBody for FrameBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let data = match ready!(self.frames.poll_recv(context)) {
            Some(Frame::Data(data)) => data,
            Some(Frame::End(ending)) => {
                self.log.ended(ending);
                self.over = true;
                return Poll::Ready(None);
            }
            // The task is gone without an ending: it panicked. Say so, and do not say `[DONE]`.
            None => {
                let cause = "the task of the call died".to_owned();
                self.log.ended(Ending::Interrupted { cause });
                self.over = true;
                Frames::error(&GatewayError::Internal.envelope())
            }
        };
        Poll::Ready(Some(Ok(hyper::body::Frame::data(data))))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn text_of(frames: Vec<Frame>) -> String {
        let (sender, receiver) = mpsc::channel(8);
        for frame in frames {
            sender.try_send(frame).ok().unwrap();
        }
        drop(sender);
        let body = response(receiver, RequestLog::default()).into_body();
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_stream_whose_task_died_says_so() {
        let data = || Frame::Data(Bytes::from_static(b"data: 1\n\n"));
        let end = Frame::End(Ending::Finished { usage: None });
        assert_eq!(text_of(vec![data(), end]).await, "data: 1\n\n");
        let cut = text_of(vec![data()]).await;
        let error = cut.strip_prefix("data: 1\n\ndata: ").unwrap();
        let error: serde_json::Value = serde_json::from_str(error).unwrap();
        assert_eq!(error["error"]["code"], "internal_error");
    }
}
