//! A streamed answer held to SPEC §6.1, whatever the provider sends.
//!
//! Nothing of the provider's is relayed: each frame is written anew from a [`Part`]. Official
//! clients concatenate what they should only get once (role, tool name) and stumble over nulls,
//! so what is passed on is exactly what the contract promises:
//!
//! - each choice is opened once, choice 0 first;
//! - a tool call's ID and name come once, then its arguments; calls are numbered from 0 without
//!   gaps, and one is over before the next begins;
//! - each choice is closed once, and nothing of it follows;
//! - an answer without an end is an error, however politely the connection was closed.

use bytes::Bytes;

use super::tool_calls::{Calls, Fragment};
use crate::wire::{
    chat::{Bill, FinishReason, Usage},
    error::{Envelope, UpstreamError},
    part::Part,
    script::Script,
};

pub struct Shape<S> {
    script: S,
    /// How many choices were asked for; a provider that makes up more is not heard.
    n: u32,
    choices: Vec<Choice>,
    /// What the provider has counted.
    usage: Option<Usage>,
    bill: Option<Bill>,
    ready: Vec<Bytes>,
}

/// The most text one choice may have: far beyond what any model writes.
const MAX_TEXT_BYTES: usize = 16 << 20;

#[derive(Default)]
struct Choice {
    text_bytes: usize,
    calls: Calls,
    finish: Option<FinishReason>,
}

impl<S: Script> Shape<S> {
    pub fn new(script: S, n: u32) -> Self {
        Self {
            script,
            n,
            choices: Vec::new(),
            usage: None,
            bill: None,
            ready: Vec::new(),
        }
    }

    /// The frames that are ready to leave, oldest first.
    pub fn take_ready(&mut self) -> std::vec::Drain<'_, Bytes> {
        self.ready.drain(..)
    }

    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    pub fn script(&mut self) -> &mut S {
        &mut self.script
    }

    pub fn into_script(self) -> S {
        self.script
    }

    pub fn on_part(&mut self, part: Part) -> Result<(), UpstreamError> {
        match part {
            Part::Silence => {}
            Part::Usage(usage) => self.usage = Some(usage), // the last one counts
            Part::Content {
                choice,
                text,
                logprobs,
            } => {
                if let Some(opened) = self.opened(choice) {
                    opened.text_bytes += text.as_json().len();
                    if opened.text_bytes > MAX_TEXT_BYTES {
                        let endless = "more text than can be meant";
                        return Err(UpstreamError::Malformed(endless.into()));
                    }
                    self.script
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
                    calls.write(choice, &mut self.script, &mut self.ready);
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

    /// What is charged and shown in the place of what the provider counted.
    pub fn bill(&mut self, bill: Option<Bill>) {
        self.bill = bill;
    }

    pub fn billed(&self) -> Option<Bill> {
        self.bill
    }

    /// The end of the provider's answer: the choices are closed, or it is said what is missing.
    ///
    /// They are closed here and not before, so that nothing can follow.
    pub fn close(&mut self) -> Result<(), UpstreamError> {
        let reasons: Option<Vec<_>> = self.choices.iter().map(|choice| choice.finish).collect();
        let reasons = reasons.filter(|reasons| !reasons.is_empty());
        let reasons = reasons.ok_or_else(|| {
            UpstreamError::Broken("the answer ended without a finish reason".into())
        })?;
        if self
            .choices
            .iter()
            .any(|choice| choice.calls.has_nameless())
        {
            return Err(UpstreamError::Malformed(
                "a tool call without a name".into(),
            ));
        }
        for ((index, choice), reason) in (0..).zip(&mut self.choices).zip(reasons) {
            let (script, ready) = (&mut self.script, &mut self.ready);
            choice.calls.finish(index, reason, script, ready);
            script.close(index, reason, ready);
        }
        Ok(())
    }

    /// The last frames of an answer that is complete.
    pub fn end(&mut self) {
        self.script.end(self.bill, &mut self.ready);
    }

    /// The last frames of an answer that is not.
    pub fn fail(&mut self, envelope: &Envelope) {
        self.ready.clear();
        self.script.fail(envelope, &mut self.ready);
    }

    /// The choice, opened (and every one before it) if it is new.
    fn opened(&mut self, choice: u32) -> Option<&mut Choice> {
        if choice >= self.n {
            return None;
        }
        let index = choice as usize;
        while self.choices.len() <= index {
            let next = u32::try_from(self.choices.len()).ok()?;
            self.script.open(next, &mut self.ready);
            self.choices.push(Choice::default());
        }
        self.choices.get_mut(index)
    }
}
