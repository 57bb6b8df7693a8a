//! A streamed answer: bytes → events → [`Part`]s, whoever the provider is.

use std::{collections::VecDeque, time::Duration};

use futures_util::{Stream, StreamExt as _};

use super::{
    Parts,
    client::Reply,
    sse::{Event, MAX_EVENT_BYTES, SseReader},
};
use crate::wire::{error::UpstreamError, part::Part};

/// How long a provider that has finished may take to say so or to report its usage.
const TAIL: Duration = Duration::from_secs(5);

/// What a provider's events mean: a small machine, without clock or network.
pub trait Translator: Send + 'static {
    /// Reads one event's data and adds the parts it makes.
    fn on_event(&mut self, data: &[u8], parts: &mut VecDeque<Part>) -> Result<Then, UpstreamError>;

    /// Whether every choice has ended, so that only usage and a goodbye can follow.
    fn is_finished(&self) -> bool;
}

/// What follows an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    GoOn,
    /// Whatever follows is not part of the answer.
    End,
}

/// The parts of an answer, as this translator reads it.
pub fn parts(reply: Reply, translator: impl Translator) -> Result<Parts, UpstreamError> {
    if !reply.content_type.starts_with("text/event-stream") {
        let message = format!("a stream of type {:?}", reply.content_type);
        return Err(UpstreamError::Malformed(message));
    }
    Ok(read(reply, translator).boxed())
}

fn read(
    reply: Reply,
    translator: impl Translator,
) -> impl Stream<Item = Result<Part, UpstreamError>> + Send {
    // Boxed: it changes hands with every part.
    let reading = Box::new(Reading {
        reply,
        sse: Some(SseReader::default()),
        translator,
        ready: VecDeque::new(),
    });
    futures_util::stream::unfold(Some(reading), |reading| async {
        let mut reading = reading?;
        match reading.next().await {
            Ok(Some(part)) => Some((Ok(part), Some(reading))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
}

struct Reading<T> {
    reply: Reply,
    /// `None` once there is nothing more to read.
    sse: Option<SseReader>,
    translator: T,
    ready: VecDeque<Part>,
}

impl<T: Translator> Reading<T> {
    async fn next(&mut self) -> Result<Option<Part>, UpstreamError> {
        loop {
            if let Some(part) = self.ready.pop_front() {
                return Ok(Some(part));
            }
            let Some(sse) = &mut self.sse else {
                return Ok(None);
            };
            let event = sse
                .next_event()
                .map_err(|_| UpstreamError::TooLarge(MAX_EVENT_BYTES))?;
            if let Some(Event(data)) = event {
                self.on_event(&data)?;
            } else if let Some(bytes) = self.read().await? {
                if let Some(sse) = &mut self.sse {
                    sse.push(&bytes);
                }
            } else if let Some(Event(data)) = self.sse.take().and_then(SseReader::finish) {
                // Half an event is what a broken connection leaves. Whether the answer was
                // complete without it is judged like any other end.
                let _ = self.on_event(&data);
            }
        }
    }

    /// More bytes; `None` when there are none to wait for.
    ///
    /// An answer that has finished is not undone by how the connection ends.
    async fn read(&mut self) -> Result<Option<bytes::Bytes>, UpstreamError> {
        if !self.translator.is_finished() {
            return self.reply.next().await;
        }
        Ok(self.reply.next_within(TAIL).await.unwrap_or_default())
    }

    fn on_event(&mut self, data: &[u8]) -> Result<(), UpstreamError> {
        if self.translator.on_event(data, &mut self.ready)? == Then::End {
            self.sse = None;
            self.reply.has_said_all();
        }
        Ok(())
    }
}
