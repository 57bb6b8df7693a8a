//! The interface by which a streamed response is written in the format of one API.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::{
    chat::{Bill, FinishReason},
    json_text::JsonText,
    messages::NativeEvent,
};
use crate::wire::error::Envelope;

/// Writes the frames of one streamed response in the format of one API.
///
/// The calls come in order: a choice is opened before its content, choice 0 first; a tool call is started once, then
/// come its arguments, and it ends before the next one starts; each choice is closed once; `end` or `fail` comes last.
/// Frames that are ready to be sent are appended to `out`.
pub(crate) trait StreamWriter: Send {
    fn open(&mut self, choice: u32, out: &mut Vec<Bytes>);

    fn content(
        &mut self,
        choice: u32,
        text: &JsonText,
        logprobs: Option<&RawValue>,
        out: &mut Vec<Bytes>,
    );

    /// Starts a tool call. `number` counts the choice's calls from 0.
    fn tool_call(&mut self, choice: u32, number: usize, id: &str, name: &str, out: &mut Vec<Bytes>);

    fn tool_arguments(
        &mut self,
        choice: u32,
        number: usize,
        arguments: &JsonText,
        out: &mut Vec<Bytes>,
    );

    /// Says why the choice ends, before its last fragments and `close`.
    fn ending(&mut self, _choice: u32, _reason: FinishReason) {}

    fn close(&mut self, choice: u32, reason: FinishReason, out: &mut Vec<Bytes>);

    /// Relays an event of a provider that speaks the caller's API. Such a response has no other content.
    fn native(&mut self, _event: &NativeEvent, _out: &mut Vec<Bytes>) {}

    /// The complete response to be stored, if the caller wants it stored.
    fn to_store(&self, _bill: Option<Bill>) -> Option<String> {
        None
    }

    /// Records that storing the response failed.
    fn not_stored(&mut self) {}

    /// An event for a client that would give up on a silent stream; `None` if comments are enough.
    fn keep_alive(&mut self) -> Option<Bytes> {
        None
    }

    /// Writes the last frames of a response that is complete and charged.
    fn end(&mut self, bill: Option<Bill>, out: &mut Vec<Bytes>);

    /// Records that the last frames, so many, were dropped before they were sent. Only `fail` follows.
    fn not_sent(&mut self, _frames: usize) {}

    /// Writes the last frames of a response that failed after its head was sent.
    fn fail(&mut self, envelope: &Envelope, out: &mut Vec<Bytes>);
}

impl<S: StreamWriter + ?Sized> StreamWriter for Box<S> {
    fn open(&mut self, choice: u32, out: &mut Vec<Bytes>) {
        (**self).open(choice, out);
    }

    fn content(
        &mut self,
        choice: u32,
        text: &JsonText,
        logprobs: Option<&RawValue>,
        out: &mut Vec<Bytes>,
    ) {
        (**self).content(choice, text, logprobs, out);
    }

    fn tool_call(
        &mut self,
        choice: u32,
        number: usize,
        id: &str,
        name: &str,
        out: &mut Vec<Bytes>,
    ) {
        (**self).tool_call(choice, number, id, name, out);
    }

    fn tool_arguments(
        &mut self,
        choice: u32,
        number: usize,
        arguments: &JsonText,
        out: &mut Vec<Bytes>,
    ) {
        (**self).tool_arguments(choice, number, arguments, out);
    }

    fn ending(&mut self, choice: u32, reason: FinishReason) {
        (**self).ending(choice, reason);
    }

    fn close(&mut self, choice: u32, reason: FinishReason, out: &mut Vec<Bytes>) {
        (**self).close(choice, reason, out);
    }

    fn native(&mut self, event: &NativeEvent, out: &mut Vec<Bytes>) {
        (**self).native(event, out);
    }

    fn to_store(&self, bill: Option<Bill>) -> Option<String> {
        (**self).to_store(bill)
    }

    fn not_stored(&mut self) {
        (**self).not_stored();
    }

    fn keep_alive(&mut self) -> Option<Bytes> {
        (**self).keep_alive()
    }

    fn end(&mut self, bill: Option<Bill>, out: &mut Vec<Bytes>) {
        (**self).end(bill, out);
    }

    fn not_sent(&mut self, frames: usize) {
        (**self).not_sent(frames);
    }

    fn fail(&mut self, envelope: &Envelope, out: &mut Vec<Bytes>) {
        (**self).fail(envelope, out);
    }
}
