//! How a streamed answer is written down, whichever endpoint it was asked at.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::{
    chat::{Bill, FinishReason},
    json_text::JsonText,
};
use crate::wire::error::Envelope;

/// Writes the frames of one streamed answer.
///
/// It is told of things in order: a choice is opened before anything of it comes, choice 0 first; a
/// tool call is begun once, then its arguments come, and it is over before the next one begins;
/// each choice is closed once; the answer ends after all of that. What is ready to leave is added
/// to `out`.
pub trait Script: Send {
    fn open(&mut self, choice: u32, out: &mut Vec<Bytes>);

    fn content(
        &mut self,
        choice: u32,
        text: &JsonText,
        logprobs: Option<&RawValue>,
        out: &mut Vec<Bytes>,
    );

    /// `number` counts the choice's calls from 0.
    fn tool_call(&mut self, choice: u32, number: usize, id: &str, name: &str, out: &mut Vec<Bytes>);

    fn tool_arguments(
        &mut self,
        choice: u32,
        number: usize,
        arguments: &JsonText,
        out: &mut Vec<Bytes>,
    );

    fn close(&mut self, choice: u32, reason: FinishReason, out: &mut Vec<Bytes>);

    /// What is to be stored of a complete answer, where the caller wants that.
    fn to_store(&self, _bill: Option<Bill>) -> Option<String> {
        None
    }

    /// It could not be stored.
    fn not_stored(&mut self) {}

    /// The answer is complete and paid for.
    fn end(&mut self, bill: Option<Bill>, out: &mut Vec<Bytes>);

    /// The last frames of an answer that failed after its head was sent.
    fn fail(&mut self, envelope: &Envelope, out: &mut Vec<Bytes>);
}

impl<S: Script + ?Sized> Script for Box<S> {
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

    fn close(&mut self, choice: u32, reason: FinishReason, out: &mut Vec<Bytes>) {
        (**self).close(choice, reason, out);
    }

    fn to_store(&self, bill: Option<Bill>) -> Option<String> {
        (**self).to_store(bill)
    }

    fn not_stored(&mut self) {
        (**self).not_stored();
    }

    fn end(&mut self, bill: Option<Bill>, out: &mut Vec<Bytes>) {
        (**self).end(bill, out);
    }

    fn fail(&mut self, envelope: &Envelope, out: &mut Vec<Bytes>) {
        (**self).fail(envelope, out);
    }
}
