//! The client's side of a streamed response: frames, events during silence, and the end.

use std::{future::poll_fn, pin::Pin, sync::Arc, task::Context, time::Duration};

use bytes::Bytes;
use tokio::sync::mpsc::{self, error::TrySendError};

use super::{
    Admitted, Ending, FRAMES_IN_FLIGHT, Facts, Form, Frame, form::Storing, recorder::Recorder,
};
use crate::{
    gateway::{Gateway, retries::RecordedCall},
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
    pub recorder: Recorder,
    /// What the log line says of the call, once it is known.
    pub facts: Facts,
    /// How many of the frames that are ready are recorded.
    recorded: usize,
    /// The last frames are written, and the response is stored if it is to be stored.
    is_closed: bool,
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
        call_record: Option<Arc<RecordedCall>>,
    ) -> (Self, mpsc::Receiver<Frame>) {
        let keeps_alive = form.needs_keep_alive_events();
        let recorder = Recorder::new(call_record, form.stream_style());
        let (writer, storing) = form.stream_writer(call, admitted.estimated_input());
        if let Some((recorded, storing)) = recorder.call().zip(storing.as_ref()) {
            recorded.will_be_stored(&storing.id);
        }
        let normalizer = StreamNormalizer::new(writer, call.choices());
        let (frames, receiver) = mpsc::channel(FRAMES_IN_FLIGHT);
        let output = Self::with(normalizer, storing, frames, keeps_alive, recorder);
        (output, receiver)
    }

    /// `keeps_alive` says that the client needs events while the provider is silent.
    fn with(
        normalizer: Normalizer,
        storing: Option<Storing>,
        frames: mpsc::Sender<Frame>,
        keeps_alive: bool,
        recorder: Recorder,
    ) -> Self {
        Self {
            normalizer,
            storing,
            frames,
            silence: keeps_alive.then(|| Silence::new(KEEP_ALIVE)),
            recorder,
            facts: Facts::default(),
            recorded: 0,
            is_closed: false,
        }
    }

    /// Stores the response if it is to be stored, and writes its last frames.
    async fn close(&mut self, gateway: &Gateway) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        if let Some(storing) = &self.storing {
            let recorded = self.recorder.call();
            storing
                .store_streamed(gateway, &mut self.normalizer, recorded)
                .await;
        }
        self.normalizer.end();
    }

    /// The whole response as it is stored with the charge of a call with an idempotency key: its last frames are written
    /// and not sent yet. `None` if it is too long.
    pub(crate) async fn close_to_store(&mut self, gateway: &Gateway) -> Option<Arc<str>> {
        self.close(gateway).await;
        self.recorder.keyed()?.to_store(self.normalizer.ready())
    }

    /// Deletes the response that was stored before its charge failed.
    pub(crate) async fn unstore(&mut self, gateway: &Gateway) {
        if let Some(storing) = self.storing.take().filter(|_| self.is_closed) {
            storing.delete(gateway).await;
        }
    }

    /// Stores the response if it is to be stored, then sends its last frames: a client that has them may refer to the
    /// stored response at once.
    pub(crate) async fn finish(&mut self, gateway: &Gateway) {
        self.close(gateway).await;
        // Complete for others before its client has it: a client that retries at once gets it.
        self.record_ready();
        self.recorder.complete();
        self.send_ready().await;
        let usage = self.normalizer.billed().map(|bill| bill.usage);
        let facts = std::mem::take(&mut self.facts);
        send(&self.frames, Frame::End(Ending::Finished { usage, facts })).await;
    }

    /// Ends the stream with an error event.
    pub(crate) async fn interrupt(&mut self, error: &Envelope, cause: String) {
        self.normalizer.fail(error);
        self.record_ready();
        self.recorder.failed();
        self.send_ready().await;
        let facts = std::mem::take(&mut self.facts);
        let ending = Ending::Interrupted { cause, facts };
        send(&self.frames, Frame::End(ending)).await;
    }

    /// Records the frames that are ready; repeating it records no frame twice.
    pub(crate) fn record_ready(&mut self) {
        for frame in &self.normalizer.ready()[self.recorded..] {
            self.recorder.event(frame);
        }
        self.recorded = self.normalizer.ready().len();
    }

    /// Drops the frames that are ready, because there is no client; others may still read them.
    pub(crate) fn drop_ready(&mut self) {
        self.record_ready();
        self.recorded = 0;
        self.normalizer.take_ready();
    }

    pub(crate) async fn send_ready(&mut self) -> Reader {
        self.record_ready();
        self.recorded = 0;
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

    /// Starts the stream of a silent provider: with its first events if the client needs events, else with `keep_alive`.
    pub(crate) async fn begin(&mut self, keep_alive: &'static [u8]) {
        if self.silence.is_some() {
            self.normalizer.begin();
            self.send_ready().await;
        } else {
            let keep_alive = Bytes::from_static(keep_alive);
            self.recorder.event(&keep_alive);
            send(&self.frames, Frame::Data(keep_alive)).await;
        }
    }

    /// Waits for the provider, and meanwhile sends events to a client that needs them.
    pub(crate) async fn while_silent<F: Future + ?Sized>(
        &mut self,
        mut provider: Pin<&mut F>,
    ) -> F::Output {
        poll_fn(|context| {
            let output = provider.as_mut().poll(context);
            if output.is_pending() {
                self.poll_silence(context);
            }
            output
        })
        .await
    }

    /// Sends an event if there was none for a while. A client that has frames to read needs none.
    fn poll_silence(&mut self, context: &mut Context<'_>) {
        let Some(silence) = &mut self.silence else {
            return;
        };
        while silence.poll(context).is_ready() {
            let Ok(permit) = self.frames.try_reserve() else {
                continue;
            };
            if let Some(event) = self.normalizer.writer().keep_alive() {
                self.recorder.event(&event);
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
    use std::pin::pin;

    use serde_json::Value;
    use tokio::time::Instant;

    use super::*;
    use crate::wire::{
        chat::FinishReason,
        error::GatewayError,
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
        let style = Form::Chat.stream_style();
        let recorder = Recorder::new(None, style);
        Output::with(
            StreamNormalizer::new(writer, 1),
            None,
            frames,
            true,
            recorder,
        )
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
        let over = pin!(tokio::time::sleep(length));
        output.while_silent(over).await;
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
    async fn a_stream_that_began_in_silence_goes_on_with_the_first_part() {
        let (sender, mut frames) = mpsc::channel(32);
        let mut output = output(sender);
        output.begin(b"").await;
        let opening = ["response.created", "response.in_progress"];
        let kinds = sent(&mut frames).into_iter().map(|(kind, _)| kind);
        assert_eq!(kinds.collect::<Vec<_>>(), opening);
        silence(&mut output, Duration::from_secs(30)).await;
        assert_eq!(sent(&mut frames)[0], ("keepalive".to_owned(), 2));
        output.normalizer.on_part(text()).unwrap();
        output.send_ready().await;
        let first = sent(&mut frames).swap_remove(0);
        assert_eq!(first.0, "response.output_item.added", "it is opened once");
    }

    #[tokio::test]
    async fn events_that_were_not_sent_leave_no_gap_in_the_numbers() {
        let (sender, mut frames) = mpsc::channel(32);
        let mut output = output(sender);
        output.normalizer.on_part(text()).unwrap();
        let finish = Part::Finish {
            choice: 0,
            reason: FinishReason::Stop,
        };
        output.normalizer.on_part(finish).unwrap();
        output.send_ready().await;
        let next = sent(&mut frames).len() as u64;
        output.normalizer.close().unwrap();
        // As before a charge with an idempotency key, which is then refused.
        output.normalizer.end();
        let error = GatewayError::Internal.envelope();
        output.interrupt(&error, "not charged".into()).await;
        let last = [("error", next), ("response.failed", next + 1)];
        let last = last.map(|(kind, number)| (kind.to_owned(), number));
        assert_eq!(sent(&mut frames), last);
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
