//! A streamed answer's body: frames as they come, and a word if they stop coming.

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

/// After how long a silence a stream shows that it is alive, with a comment that clients pass over.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The 200 that opens a stream; the log is told how it went.
pub fn response(frames: mpsc::Receiver<Frame>, log: RequestLog, words: ErrorWriter) -> Response {
    let body = FrameBody {
        frames,
        log,
        words,
        sent: 0,
        keep_alive: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
        alive: false,
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
    /// In which an error is told that nobody else can tell any more.
    words: ErrorWriter,
    sent: u64,
    keep_alive: Pin<Box<Sleep>>,
    /// Something was sent since the timer was set.
    alive: bool,
    over: bool,
}

impl FrameBody {
    /// Ready when nothing has been sent for as long as proxies wait at least. Setting a timer for
    /// each frame would cost more than the frame; so it is set anew only when it has run out.
    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.keep_alive.as_mut().poll(context));
            self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
            if !std::mem::take(&mut self.alive) {
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
        if self.over {
            return Poll::Ready(None);
        }
        let Poll::Ready(frame) = self.frames.poll_recv(context) else {
            ready!(self.poll_silence(context));
            let comment = Bytes::from_static(b": keep-alive\n\n");
            return Poll::Ready(Some(Ok(hyper::body::Frame::data(comment))));
        };
        self.alive = true;
        let data = match frame {
            Some(Frame::Data(data)) => {
                self.sent += 1;
                data
            }
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
                (self.words)(&GatewayError::Internal.envelope(), self.sent)
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

    async fn text_of(frames: Vec<Frame>, words: ErrorWriter) -> String {
        let (sender, receiver) = mpsc::channel(8);
        for frame in frames {
            sender.try_send(frame).ok().unwrap();
        }
        drop(sender);
        let body = response(receiver, RequestLog::default(), words).into_body();
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_stream_whose_task_died_says_so() {
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
    async fn a_stream_without_news_shows_that_it_is_alive() {
        let (sender, receiver) = mpsc::channel(8);
        let started = Instant::now();
        let body = response(receiver, RequestLog::default(), |envelope, _| {
            Frames::error(envelope)
        })
        .into_body();
        let reading = tokio::spawn(async { body.collect().await.unwrap().to_bytes() });
        let news = || Frame::Data(Bytes::from_static(b"data: 1\n\n"));
        tokio::time::sleep(Duration::from_secs(10)).await;
        sender.send(news()).await.ok().unwrap();
        // Alive at 10 s: the first comment can be expected between 25 and 40 s.
        tokio::time::sleep(Duration::from_secs(31)).await;
        sender.send(news()).await.ok().unwrap();
        let end = Frame::End(Ending::Finished { usage: None });
        sender.send(end).await.ok().unwrap();
        let read = String::from_utf8(reading.await.unwrap().to_vec()).unwrap();
        assert_eq!(read, "data: 1\n\n: keep-alive\n\ndata: 1\n\n");
        assert!(started.elapsed() < Duration::from_secs(45));
    }

    #[tokio::test]
    async fn a_responses_stream_whose_task_died_says_so_in_its_own_words() {
        let words: ErrorWriter = error_event;
        let cut = text_of(Vec::new(), words).await;
        let error = cut.strip_prefix("event: error\ndata: ").unwrap();
        let error: serde_json::Value = serde_json::from_str(error).unwrap();
        assert_eq!(error["type"], "error");
        assert_eq!(error["sequence_number"], 0);
        assert_eq!(error["code"], "internal_error");
        assert_eq!(error["error"]["type"], "server_error");
    }
}
