//! Reads a streamed response of any provider: bytes → events → [`Part`]s. Events are server-sent events, or come in
//! another [`Framing`].
//!
//! A stream that breaks before every choice has finished ends with an error or without its [`Part::Finish`]; after
//! that, connection errors are ignored.

use std::{collections::VecDeque, time::Duration};

use futures_util::{Stream, StreamExt as _};

use super::{
    Parts,
    client::Response,
    sse::{Event, MAX_EVENT_BYTES, SseReader},
};
use crate::wire::{error::UpstreamError, part::Part};

/// Timeout for the end of the stream and the usage, after every choice has finished.
const TAIL_TIMEOUT: Duration = Duration::from_secs(5);

/// Translates a provider's events into parts: a state machine without I/O or clock.
pub(crate) trait Translator: Send + 'static {
    /// Parses the data of one event and appends its parts.
    fn on_event(
        &mut self,
        data: &[u8],
        parts: &mut VecDeque<Part>,
    ) -> Result<AfterEvent, UpstreamError>;

    /// Whether every choice has finished, so that only usage and the end marker can follow.
    fn is_finished(&self) -> bool;
}

/// Whether to read on after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterEvent {
    Continue,
    /// The response is complete; later bytes are ignored.
    End,
}

/// Finds events in the bytes of a stream: a state machine without I/O or clock.
pub(crate) trait Framing: Default + Send + 'static {
    /// How the content type of such a stream begins.
    const CONTENT_TYPE: &'static str;

    fn push(&mut self, bytes: &[u8]);

    /// The data of the next complete event; `None` if more bytes are needed.
    fn next_event(&mut self) -> Result<Option<Vec<u8>>, UpstreamError>;

    /// The data of the last event, if the stream ended without the mark after it.
    fn finish(self) -> Option<Vec<u8>>;
}

impl Framing for SseReader {
    const CONTENT_TYPE: &'static str = "text/event-stream";

    fn push(&mut self, bytes: &[u8]) {
        SseReader::push(self, bytes);
    }

    fn next_event(&mut self) -> Result<Option<Vec<u8>>, UpstreamError> {
        let event = SseReader::next_event(self);
        let event = event.map_err(|_| UpstreamError::TooLarge(MAX_EVENT_BYTES))?;
        Ok(event.map(|Event(data)| data))
    }

    fn finish(self) -> Option<Vec<u8>> {
        SseReader::finish(self).map(|Event(data)| data)
    }
}

/// The parts of a response body, which must be a stream of server-sent events.
pub(crate) fn parts(
    response: Response,
    translator: impl Translator,
) -> Result<Parts, UpstreamError> {
    framed_parts::<SseReader>(response, translator)
}

/// The parts of a response body, which must be a stream of this framing.
pub(crate) fn framed_parts<F: Framing>(
    response: Response,
    translator: impl Translator,
) -> Result<Parts, UpstreamError> {
    if !response.content_type.starts_with(F::CONTENT_TYPE) {
        let message = format!("a stream of type {:?}", response.content_type);
        return Err(UpstreamError::Malformed(message));
    }
    Ok(read::<F>(response, translator).boxed())
}

fn read<F: Framing>(
    response: Response,
    translator: impl Translator,
) -> impl Stream<Item = Result<Part, UpstreamError>> + Send {
    // Boxed, because `unfold` moves the reader with every part.
    let reader = Box::new(PartReader {
        response,
        events: Some(F::default()),
        translator,
        ready: VecDeque::new(),
    });
    futures_util::stream::unfold(Some(reader), |reader| async {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Some(part)) => Some((Ok(part), Some(reader))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
}

struct PartReader<F, T> {
    response: Response,
    /// `None` once the stream has ended.
    events: Option<F>,
    translator: T,
    /// Parts that were translated and not returned yet.
    ready: VecDeque<Part>,
}

impl<F: Framing, T: Translator> PartReader<F, T> {
    async fn next(&mut self) -> Result<Option<Part>, UpstreamError> {
        loop {
            if let Some(part) = self.ready.pop_front() {
                return Ok(Some(part));
            }
            let Some(events) = &mut self.events else {
                return Ok(None);
            };
            if let Some(data) = events.next_event()? {
                self.on_event(&data)?;
            } else if let Some(bytes) = self.read().await? {
                if let Some(events) = &mut self.events {
                    events.push(&bytes);
                }
            } else if let Some(data) = self.events.take().and_then(F::finish) {
                // A broken connection may leave half an event, so a parse error is ignored. The consumer checks
                // whether the response was complete, as at any other end.
                let _ = self.on_event(&data);
            }
        }
    }

    /// The next bytes; `None` at the end of the body.
    ///
    /// Once the response has finished, a timeout or connection error counts as the end.
    async fn read(&mut self) -> Result<Option<bytes::Bytes>, UpstreamError> {
        if !self.translator.is_finished() {
            return self.response.next_chunk().await;
        }
        Ok(self
            .response
            .next_chunk_within(TAIL_TIMEOUT)
            .await
            .unwrap_or_default())
    }

    fn on_event(&mut self, data: &[u8]) -> Result<(), UpstreamError> {
        if let Some(model) = &mut self.response.model {
            model.read(data);
        }
        if self.translator.on_event(data, &mut self.ready)? == AfterEvent::End {
            self.events = None;
            self.response.finish_early();
        }
        Ok(())
    }
}
