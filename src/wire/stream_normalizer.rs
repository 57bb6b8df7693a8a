//! Makes a streamed response conform to §6.1, whatever the provider sends.
//!
//! No frame of the provider is relayed: each one is written anew from a [`Part`]. Official clients concatenate fields
//! that should come once (role, tool name) and fail on nulls, so the output is exactly what the contract promises:
//!
//! - each choice is opened once, choice 0 first;
//! - a tool call's ID and name come once, then its arguments; calls are numbered from 0 without
//!   gaps, and one ends before the next begins;
//! - each choice is closed once, and nothing of it follows;
//! - a response without a finish reason is an error, even if the connection was closed properly.

use bytes::Bytes;

use super::tool_calls::{Calls, Fragment};
use crate::wire::{
    chat::{Bill, FinishReason, Usage},
    error::{Envelope, UpstreamError},
    part::Part,
    stream_writer::StreamWriter,
};

pub(crate) struct StreamNormalizer<W> {
    writer: W,
    /// How many choices the request wants; parts of further ones are ignored.
    n: u32,
    choices: Vec<Choice>,
    /// The usage that the provider reported.
    usage: Option<Usage>,
    /// Set before the end: what is charged and shown.
    bill: Option<Bill>,
    /// Frames to be sent, oldest first.
    ready: Vec<Bytes>,
}

/// The most text that a choice may have: far more than any model writes.
const MAX_TEXT_BYTES: usize = 16 << 20;

#[derive(Default)]
struct Choice {
    text_bytes: usize,
    calls: Calls,
    finish: Option<FinishReason>,
}

impl<W: StreamWriter> StreamNormalizer<W> {
    pub(crate) fn new(writer: W, n: u32) -> Self {
        Self {
            writer,
            n,
            choices: Vec::new(),
            usage: None,
            bill: None,
            ready: Vec::new(),
        }
    }

    /// The frames that are ready to be sent, oldest first.
    pub(crate) fn ready(&self) -> &[Bytes] {
        &self.ready
    }

    /// Takes the frames that are ready to be sent, oldest first.
    pub(crate) fn take_ready(&mut self) -> std::vec::Drain<'_, Bytes> {
        self.ready.drain(..)
    }

    pub(crate) fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// The finish reasons of the choices, as far as they have one.
    pub(crate) fn finish_reasons(&self) -> Vec<&'static str> {
        let reasons = self.choices.iter().filter_map(|choice| choice.finish);
        reasons.map(FinishReason::as_str).collect()
    }

    pub(crate) fn writer(&mut self) -> &mut W {
        &mut self.writer
    }

    pub(crate) fn into_writer(self) -> W {
        self.writer
    }

    /// Opens the first choice before anything of it has arrived.
    pub(crate) fn begin(&mut self) {
        self.opened(0);
    }

    pub(crate) fn on_part(&mut self, part: Part) -> Result<(), UpstreamError> {
        match part {
            Part::Silence => {}
            Part::Native(event) => self.writer.native(&event, &mut self.ready),
            Part::Usage(usage) => self.usage = Some(usage), // the last report counts
            Part::Content {
                choice,
                text,
                logprobs,
            } => {
                if let Some(opened) = self.opened(choice) {
                    opened.text_bytes += text.as_json().len();
                    if opened.text_bytes > MAX_TEXT_BYTES {
                        let message = "a choice with too much text";
                        return Err(UpstreamError::Malformed(message.into()));
                    }
                    self.writer
                        .content(choice, &text, logprobs.as_deref(), &mut self.ready);
                }
            }
            Part::ToolCall {
                choice,
                slot,
                id,
                name,
                arguments,
            } => {
                if self.opened(choice).is_some() {
                    let calls = &mut self.choices[choice as usize].calls;
                    calls.add(Fragment {
                        slot,
                        id,
                        name,
                        arguments,
                    })?;
                    calls.write(choice, &mut self.writer, &mut self.ready);
                }
            }
            Part::Finish { choice, reason } => {
                if let Some(choice) = self.opened(choice) {
                    choice.finish.get_or_insert(reason);
                }
            }
        }
        Ok(())
    }

    /// Sets the bill that is shown in place of the usage that the provider reported.
    pub(crate) fn bill(&mut self, bill: Option<Bill>) {
        self.bill = bill;
    }

    pub(crate) fn billed(&self) -> Option<Bill> {
        self.bill
    }

    /// Ends the provider's response: closes all choices, or returns an error if the response is incomplete.
    ///
    /// Choices are closed here and not earlier, so that nothing of them can follow.
    pub(crate) fn close(&mut self) -> Result<(), UpstreamError> {
        let reasons: Option<Vec<_>> = self.choices.iter().map(|choice| choice.finish).collect();
        let reasons = reasons.filter(|reasons| !reasons.is_empty());
        let reasons = reasons.ok_or_else(|| UpstreamError::Broken("no finish reason".into()))?;
        if self.choices.iter().any(|choice| choice.calls.has_unnamed()) {
            return Err(UpstreamError::Malformed(
                "a tool call without a name".into(),
            ));
        }
        for ((index, choice), reason) in (0..).zip(&mut self.choices).zip(reasons) {
            let (writer, ready) = (&mut self.writer, &mut self.ready);
            writer.ending(index, reason);
            choice.calls.finish(index, reason, writer, ready);
            writer.close(index, reason, ready);
        }
        Ok(())
    }

    /// Writes the last frames of a complete response.
    pub(crate) fn end(&mut self) {
        self.writer.end(self.bill, &mut self.ready);
    }

    /// Drops the frames not sent yet and writes the last frames of a failed response.
    pub(crate) fn fail(&mut self, envelope: &Envelope) {
        self.writer.not_sent(self.ready.len());
        self.ready.clear();
        self.writer.fail(envelope, &mut self.ready);
    }

    /// The choice; opens it, and all before it, if it is new. `None` for a choice beyond those requested.
    fn opened(&mut self, choice: u32) -> Option<&mut Choice> {
        if choice >= self.n {
            return None;
        }
        let index = choice as usize;
        while self.choices.len() <= index {
            let next = u32::try_from(self.choices.len()).ok()?;
            self.writer.open(next, &mut self.ready);
            self.choices.push(Choice::default());
        }
        self.choices.get_mut(index)
    }
}
