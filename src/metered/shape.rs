//! A streamed answer held to SPEC §6.1, whatever the provider sends.
//!
//! Nothing of the provider's is relayed: each frame is built anew from a [`Part`]. Official
//! clients concatenate what they should only get once (role, tool name) and stumble over nulls,
//! so what is passed on is exactly what the contract promises:
//!
//! - each choice opens with its role, choice 0 first;
//! - a tool call's ID and name come once, then its arguments, numbered from 0 without gaps;
//! - each choice ends with one terminal frame of its own, then the usage if it was asked for,
//!   then `[DONE]`;
//! - an answer without an end is an error, however politely the connection was closed.

use bytes::Bytes;

use crate::{
    auth::random_id,
    error::UpstreamError,
    upstream::Part,
    wire::{
        chat::{FinishReason, Frames, Usage},
        json_text::JsonText,
    },
};

/// The most tool calls one choice may make; more are a provider gone wrong.
const MAX_TOOL_CALLS: usize = 512;

pub struct Shape {
    frames: Frames,
    /// How many choices were asked for; a provider that makes up more is not heard.
    n: u32,
    choices: Vec<Choice>,
    usage: Option<Usage>,
    ready: Vec<Bytes>,
}

#[derive(Default)]
struct Choice {
    calls: Vec<Call>,
    finish: Option<FinishReason>,
}

impl Choice {
    /// Frames for the calls that got no arguments: such a call is one with none, and still JSON.
    fn missing_arguments(&self, index: u32, frames: &Frames) -> impl Iterator<Item = Bytes> {
        let without = self.calls.iter().enumerate();
        let without = without.filter(|(_, call)| !call.has_arguments);
        let none = JsonText::new("{}");
        without.map(move |(number, _)| frames.tool_arguments(index, number, &none))
    }
}

/// A tool call as far as it has been seen.
struct Call {
    slot: u32,
    id: Option<String>,
    /// The call has been announced: its name was known.
    announced: bool,
    /// Arguments that came before the name.
    early: Vec<JsonText>,
    has_arguments: bool,
}

impl Shape {
    pub fn new(frames: Frames, n: u32) -> Self {
        Self {
            frames,
            n,
            choices: Vec::new(),
            usage: None,
            ready: Vec::new(),
        }
    }

    /// The frames that are ready to leave, oldest first.
    pub fn take_ready(&mut self) -> std::vec::Drain<'_, Bytes> {
        self.ready.drain(..)
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub fn usage(&self) -> Option<Usage> {
        self.usage
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
                if self.opened(choice).is_some() {
                    self.ready
                        .push(self.frames.content(choice, &text, logprobs.as_deref()));
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
                    self.on_tool_fragment(choice, slot, id, name, arguments)?;
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

    /// Forgets a count that cannot be true: it is neither shown nor billed.
    pub fn drop_usage_unless(&mut self, plausible: impl FnOnce(Usage) -> bool) {
        self.usage = self.usage.filter(|usage| plausible(*usage));
    }

    /// The end of the provider's answer: the closing frames, or what is missing.
    ///
    /// Terminal frames wait until here, so that nothing can follow them.
    pub fn on_end(&mut self, usage_asked: bool, show_cached: bool) -> Result<(), UpstreamError> {
        let reasons: Option<Vec<_>> = self.choices.iter().map(|choice| choice.finish).collect();
        let reasons = reasons.filter(|reasons| !reasons.is_empty());
        let reasons = reasons.ok_or_else(|| {
            UpstreamError::Broken("the answer ended without a finish reason".into())
        })?;
        let mut calls = self.choices.iter().flat_map(|choice| &choice.calls);
        if calls.any(|call| !call.announced) {
            return Err(UpstreamError::Malformed(
                "a tool call without a name".into(),
            ));
        }
        for ((index, choice), reason) in (0..).zip(&self.choices).zip(reasons) {
            if reason == FinishReason::ToolCalls {
                self.ready
                    .extend(choice.missing_arguments(index, &self.frames));
            }
            self.ready.push(self.frames.terminal(index, reason));
        }
        if let Some(usage) = self.usage.filter(|_| usage_asked) {
            self.ready.push(self.frames.usage(usage, show_cached));
        }
        self.ready.push(Frames::done());
        Ok(())
    }

    /// The choice, opened (and every one before it) with its role if it is new.
    fn opened(&mut self, choice: u32) -> Option<&mut Choice> {
        if choice >= self.n {
            return None;
        }
        let index = choice as usize;
        while self.choices.len() <= index {
            let next = u32::try_from(self.choices.len()).ok()?;
            self.ready.push(self.frames.role(next));
            self.choices.push(Choice::default());
        }
        self.choices.get_mut(index)
    }

    fn on_tool_fragment(
        &mut self,
        choice: u32,
        slot: u32,
        id: Option<String>,
        name: Option<String>,
        arguments: Option<JsonText>,
    ) -> Result<(), UpstreamError> {
        let calls = &mut self.choices[choice as usize].calls;
        let number = find_or_begin(calls, slot, id.as_deref(), name.as_deref());
        if number >= MAX_TOOL_CALLS {
            return Err(UpstreamError::Malformed(
                "more tool calls than can be meant".into(),
            ));
        }
        let call = &mut calls[number];
        if let Some(name) = name.filter(|_| !call.announced) {
            call.announced = true;
            let id = call
                .id
                .get_or_insert_with(|| id.unwrap_or_else(|| random_id("call_")));
            self.ready
                .push(self.frames.tool_call(choice, number, id, &name));
            for early in call.early.drain(..) {
                self.ready
                    .push(self.frames.tool_arguments(choice, number, &early));
            }
        } else if call.id.is_none() {
            call.id = id;
        }
        call.has_arguments |= arguments.is_some();
        match arguments {
            None => {}
            Some(arguments) if call.announced => {
                self.ready
                    .push(self.frames.tool_arguments(choice, number, &arguments));
            }
            Some(arguments) => {
                if call.early.len() >= MAX_TOOL_CALLS {
                    return Err(UpstreamError::Malformed(
                        "a tool call without a name".into(),
                    ));
                }
                call.early.push(arguments);
            }
        }
        Ok(())
    }
}

/// Our number for the call that a fragment belongs to.
///
/// It is the latest call in the same slot, unless the fragment brings another ID: some servers
/// give every parallel call the slot 0 and tell them apart by their IDs alone.
fn find_or_begin(calls: &mut Vec<Call>, slot: u32, id: Option<&str>, name: Option<&str>) -> usize {
    let latest = calls.iter().rposition(|call| call.slot == slot);
    if let Some(number) = latest {
        let known = calls[number].id.as_deref();
        let another = matches!((known, id), (Some(known), Some(id)) if known != id);
        if !another || name.is_none() {
            return number;
        }
    }
    let id = id.map(str::to_owned);
    calls.push(Call {
        slot,
        id,
        announced: false,
        early: Vec::new(),
        has_arguments: false,
    });
    calls.len() - 1
}
