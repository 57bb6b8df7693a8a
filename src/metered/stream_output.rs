//! The client's side of a streamed response: frames, events during silence, and the end.

use std::{task::Context, time::Duration};

use tokio::sync::mpsc::{self, error::TrySendError};

use super::{Admitted, Ending, FRAMES_IN_FLIGHT, Form, Frame, form::Storing};
use crate::{
    gateway::Gateway,
    net::silence::Silence,
    prompt::ChatCall,
    wire::{error::Envelope, stream_normalizer::StreamNormalizer, stream_writer::StreamWriter},
};

/// How long a frame waits for a client that reads none. Usually the connection notices that first (`net::stall`, for a
/// stream of HTTP/2 `net::http2`); this limit does not depend on it.
const READER_TIMEOUT: Duration = Duration::from_mins(1);

/// Time without an event after which one is sent to clients that need it. Some of them give up after five minutes.
const KEEP_ALIVE: Duration = Duration::from_secs(12);

/// Normalizes the provider's stream and writes it in the form of the endpoint.
pub(crate) type Normalizer = StreamNormalizer<Box<dyn StreamWriter>>;

/// The client's side of a stream.
pub(crate) struct Output {
    pub normalizer: Normalizer,
    storing: Option<Storing>,
    pub frames: mpsc::Sender<Frame>,
    /// For clients that need events while the provider is silent.
    silence: Option<Silence>,
}

/// Whether the client still reads.
pub(crate) enum Reader {
    Connected,
    Gone,
}

impl Output {
    /// The output, and where its frames arrive.
    pub(crate) fn new(
        form: Form,
        call: &ChatCall,
        admitted: &Admitted,
    ) -> (Self, mpsc::Receiver<Frame>) {
        let keeps_alive = form.needs_keep_alive_events();
        let (writer, storing) = form.stream_writer(call, admitted.estimated_input());
        let normalizer = StreamNormalizer::new(writer, call.choices());
        let (frames, receiver) = mpsc::channel(FRAMES_IN_FLIGHT);
        let output = Self::with(normalizer, storing, frames, keeps_alive);
        (output, receiver)
    }

    /// `keeps_alive` says that the client needs events while the provider is silent.
    fn with(
        normalizer: Normalizer,
        storing: Option<Storing>,
        frames: mpsc::Sender<Frame>,
        keeps_alive: bool,
    ) -> Self {
        Self {
            normalizer,
            storing,
            frames,
            silence: keeps_alive.then(|| Silence::new(KEEP_ALIVE)),
        }
    }

    /// Stores the response if it is to be stored, then sends its last frames: a client that has them may refer to the
    /// stored response at once.
    pub(crate) async fn finish(&mut self, gateway: &Gateway) {
        if let Some(storing) = self.storing.take() {
            storing.store_streamed(gateway, &mut self.normalizer).await;
        }
        self.normalizer.end();
        self.send_ready().await;
        let usage = self.normalizer.billed().map(|bill| bill.usage);
        send(&self.frames, Frame::End(Ending::Finished { usage })).await;
    }

    /// Ends the stream with an error event.
    pub(crate) async fn interrupt(&mut self, error: &Envelope, cause: String) {
        self.normalizer.fail(error);
        self.send_ready().await;
        send(&self.frames, Frame::End(Ending::Interrupted { cause })).await;
    }

    pub(crate) async fn send_ready(&mut self) -> Reader {
        for frame in self.normalizer.take_ready() {
            if let Some(silence) = &mut self.silence {
                silence.broken();
            }
            if !send(&self.frames, Frame::Data(frame)).await {
                return Reader::Gone;
            }
        }
        Reader::Connected
    }

    /// Sends an event if there was none for a while. A client that has frames to read needs none.
    pub(crate) fn poll_silence(&mut self, context: &mut Context<'_>) {
        let Some(silence) = &mut self.silence else {
            return;
        };
        while silence.poll(context).is_ready() {
            let Ok(permit) = self.frames.try_reserve() else {
                continue;
            };
            if let Some(event) = self.normalizer.writer().keep_alive() {
                permit.send(Frame::Data(event));
            }
        }
    }
}

/// Sends a frame; returns whether the client took it or has room for it.
async fn send(frames: &mpsc::Sender<Frame>, frame: Frame) -> bool {
    match frames.try_send(frame) {
        Ok(()) => true,
        Err(TrySendError::Full(frame)) => {
            let sent = frames.send_timeout(frame, READER_TIMEOUT).await;
            sent.is_ok()
        }
        Err(TrySendError::Closed(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, sync::Arc};

    use serde_json::Value;
    use tokio::time::Instant;

    use super::*;
    use crate::wire::{
        json_text::JsonText,
        part::Part,
        responses::{Events, NewResponse, ResponsesRequest},
    };

    fn output(frames: mpsc::Sender<Frame>) -> Output {
        let request = ResponsesRequest::parse(br#"{"model":"m","input":"Hi"}"#).unwrap();
        let response = NewResponse {
            id: "resp_1".into(),
            created_at: 1,
            echo: request.echo,
            names: request.names,
        };
        let writer: Box<dyn StreamWriter> = Box::new(Events::new(Arc::new(response), || 1));
        Output::with(StreamNormalizer::new(writer, 1), None, frames, true)
    }

    fn text() -> Part {
        Part::Content {
            choice: 0,
            text: JsonText::new("Hi"),
            logprobs: None,
        }
    }

    /// Waits in silence, as the relay does for the next part of the provider.
    async fn silence(output: &mut Output, length: Duration) {
        let mut over = Box::pin(tokio::time::sleep(length));
        poll_fn(|context| {
            let is_over = over.as_mut().poll(context);
            if is_over.is_pending() {
                output.poll_silence(context);
            }
            is_over
        })
        .await;
    }

    /// The type and number of each event that was sent.
    fn sent(frames: &mut mpsc::Receiver<Frame>) -> Vec<(String, u64)> {
        let mut sent = Vec::new();
        while let Ok(Frame::Data(frame)) = frames.try_recv() {
            let frame = String::from_utf8(frame.to_vec()).unwrap();
            let (_, data) = frame.split_once("\ndata: ").unwrap();
            let event: Value = serde_json::from_str(data).unwrap();
            let number = event["sequence_number"].as_u64().unwrap();
            sent.push((event["type"].as_str().unwrap().to_owned(), number));
        }
        sent
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_provider_is_bridged_by_numbered_events() {
        let (sender, mut frames) = mpsc::channel(32);
        let mut output = output(sender);
        let begun = Instant::now();
        output.normalizer.on_part(text()).unwrap();
        output.send_ready().await;
        let opening = sent(&mut frames);
        assert_eq!(opening.len(), 5);
        silence(&mut output, Duration::from_mins(1)).await;
        let events = sent(&mut frames);
        assert!(events.len() >= 3, "{events:?}");
        for ((kind, number), expected) in events.iter().zip(5..) {
            assert_eq!((kind.as_str(), *number), ("keepalive", expected));
        }
        output.normalizer.on_part(text()).unwrap();
        output.send_ready().await;
        let next = 5 + events.len() as u64;
        let delta = ("response.output_text.delta".to_owned(), next);
        assert_eq!(sent(&mut frames), [delta], "the numbers go on");
        assert_eq!(begun.elapsed(), Duration::from_mins(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_frames_to_read_gets_no_further_ones() {
        let (sender, mut frames) = mpsc::channel(5);
        let mut output = output(sender);
        output.normalizer.on_part(text()).unwrap();
        output.send_ready().await;
        silence(&mut output, Duration::from_mins(5)).await;
        assert_eq!(sent(&mut frames).len(), 5);
        silence(&mut output, Duration::from_mins(1)).await;
        let first = sent(&mut frames).swap_remove(0);
        assert_eq!(first, ("keepalive".to_owned(), 5), "no number is lost");
    }
}
