//! Translates a streamed response: events → [`Part`]s.
//!
//! Each event is a response object with the new content. There is no end marker: a stream is complete when every
//! candidate has a finish reason, and was cut off if it ends before that.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde_json::Value;

use super::{
    call_cache::CallCache,
    fields::{Produced, finish_reason, read_usage},
    logprobs,
    response::{Candidate, Outcome, Response, VisiblePart},
};
use crate::{
    upstream::stream::{AfterEvent, Translator},
    wire::{
        chat::{FinishReason, ToolCall},
        error::UpstreamError,
        json_text::JsonText,
        part::Part,
    },
};

/// Stream translator; its state is what later events depend on.
pub(crate) struct EventTranslator {
    n: u32,
    calls: Arc<CallCache>,
    choices: BTreeMap<u32, Choice>,
    /// The latest token counts, until they are emitted.
    counts: Option<Value>,
}

#[derive(Default)]
struct Choice {
    has_text: bool,
    /// Number of tool calls so far.
    calls: u32,
    finished: bool,
}

impl Translator for EventTranslator {
    fn is_finished(&self) -> bool {
        let finished = self.choices.values().filter(|choice| choice.finished);
        finished.count() >= self.n as usize
    }

    fn on_event(
        &mut self,
        data: &[u8],
        parts: &mut VecDeque<Part>,
    ) -> Result<AfterEvent, UpstreamError> {
        if data.is_empty() {
            return Ok(AfterEvent::Continue);
        }
        let mut response = Response::read(data)?;
        self.counts = response.usage_metadata.take().or(self.counts.take());
        match response.outcome() {
            Outcome::PromptBlocked => {
                for choice in 0..self.n {
                    self.finish(choice, FinishReason::ContentFilter, parts);
                }
            }
            Outcome::Candidates(candidates) => {
                for candidate in candidates {
                    self.on_candidate(candidate, parts)?;
                }
            }
        }
        // Counts grow with the response, so they are billed only once a candidate has finished.
        if self.choices.values().any(|choice| choice.finished) {
            let counts = self.counts.take();
            parts.extend(counts.as_ref().and_then(read_usage).map(Part::Usage));
        }
        if parts.is_empty() {
            parts.push_back(Part::Silence);
        }
        Ok(AfterEvent::Continue)
    }
}

impl EventTranslator {
    /// For a response with `n` choices.
    pub(crate) fn new(n: u32, calls: Arc<CallCache>) -> Self {
        Self {
            n,
            calls,
            choices: BTreeMap::new(),
            counts: None,
        }
    }

    fn on_candidate(
        &mut self,
        mut candidate: Candidate,
        parts: &mut VecDeque<Part>,
    ) -> Result<(), UpstreamError> {
        let index = candidate.index.unwrap_or(0);
        if index >= self.n {
            return Ok(()); // not requested
        }
        let choice = self.choices.entry(index).or_default();
        let logprobs = candidate.logprobs_result.as_ref();
        let mut logprobs = logprobs.and_then(logprobs::read);
        for part in candidate.take_visible_parts(&self.calls) {
            match part {
                VisiblePart::Text(text) => {
                    choice.has_text = true;
                    parts.push_back(Part::Content {
                        choice: index,
                        text,
                        logprobs: logprobs.take(),
                    });
                }
                VisiblePart::Call(call) => {
                    parts.push_back(tool_call(index, choice.calls, call));
                    choice.calls += 1;
                }
            }
        }
        if logprobs.is_some() {
            parts.push_back(Part::Content {
                choice: index,
                text: JsonText::new(""),
                logprobs,
            });
        }
        if let Some(reason) = candidate.finish_reason {
            let produced = Produced {
                text: choice.has_text,
                calls: choice.calls > 0,
            };
            let reason = finish_reason(&reason, produced)?;
            self.finish(index, reason, parts);
        }
        Ok(())
    }

    fn finish(&mut self, choice: u32, reason: FinishReason, parts: &mut VecDeque<Part>) {
        self.choices.entry(choice).or_default().finished = true;
        parts.push_back(Part::Finish { choice, reason });
    }
}

/// A tool call as a single fragment: Gemini sends calls whole.
fn tool_call(choice: u32, slot: u32, call: ToolCall) -> Part {
    Part::ToolCall {
        choice,
        slot,
        id: Some(call.id),
        name: Some(call.function.name),
        arguments: Some(call.function.arguments),
    }
}
