//! A streamed answer: events → [`Part`]s.
//!
//! Each event is a response with what is new. There is no goodbye: the stream is over when every
//! candidate has said why it ended, and one that ends before that was cut off.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde_json::Value;

use super::{
    calls::Calls,
    logprobs,
    response::{Candidate, Piece, Response, Said},
    words::{Produced, finish_reason, read_usage},
};
use crate::{
    upstream::stream::{Then, Translator},
    wire::{
        chat::{FinishReason, ToolCall},
        error::UpstreamError,
        json_text::JsonText,
        part::Part,
    },
};

/// What must be remembered from one event to the next.
pub struct Events {
    n: u32,
    calls: Arc<Calls>,
    choices: BTreeMap<u32, Choice>,
    /// The latest counts, until they are handed on.
    counts: Option<Value>,
}

#[derive(Default)]
struct Choice {
    has_text: bool,
    /// How many calls it has made.
    calls: u32,
    finished: bool,
}

impl Translator for Events {
    fn is_finished(&self) -> bool {
        let finished = self.choices.values().filter(|choice| choice.finished);
        finished.count() >= self.n as usize
    }

    fn on_event(&mut self, data: &[u8], parts: &mut VecDeque<Part>) -> Result<Then, UpstreamError> {
        if data.is_empty() {
            return Ok(Then::GoOn);
        }
        let mut response = Response::read(data)?;
        self.counts = response.usage_metadata.take().or(self.counts.take());
        match response.said() {
            Said::Blocked => {
                for choice in 0..self.n {
                    self.finish(choice, FinishReason::ContentFilter, parts);
                }
            }
            Said::Candidates(candidates) => {
                for candidate in candidates {
                    self.on_candidate(candidate, parts)?;
                }
            }
        }
        // Counts grow with the answer, so those from its middle are nothing to bill by.
        if self.choices.values().any(|choice| choice.finished) {
            let counts = self.counts.take();
            parts.extend(counts.as_ref().and_then(read_usage).map(Part::Usage));
        }
        if parts.is_empty() {
            parts.push_back(Part::Silence);
        }
        Ok(Then::GoOn)
    }
}

impl Events {
    /// Of an answer with `n` choices.
    pub fn new(n: u32, calls: Arc<Calls>) -> Self {
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
            return Ok(()); // nobody asked for it
        }
        let choice = self.choices.entry(index).or_default();
        let odds = candidate.logprobs_result.as_ref();
        let mut odds = odds.and_then(logprobs::read);
        for piece in candidate.take_pieces(&self.calls) {
            match piece {
                Piece::Text(text) => {
                    choice.has_text = true;
                    parts.push_back(Part::Content {
                        choice: index,
                        text,
                        logprobs: odds.take(),
                    });
                }
                Piece::Call(call) => {
                    parts.push_back(tool_call(index, choice.calls, call));
                    choice.calls += 1;
                }
            }
        }
        if odds.is_some() {
            parts.push_back(Part::Content {
                choice: index,
                text: JsonText::new(""),
                logprobs: odds,
            });
        }
        if let Some(word) = candidate.finish_reason {
            let produced = Produced {
                text: choice.has_text,
                calls: choice.calls > 0,
            };
            let reason = finish_reason(&word, produced)?;
            self.finish(index, reason, parts);
        }
        Ok(())
    }

    fn finish(&mut self, choice: u32, reason: FinishReason, parts: &mut VecDeque<Part>) {
        self.choices.entry(choice).or_default().finished = true;
        parts.push_back(Part::Finish { choice, reason });
    }
}

/// A call comes whole, so its one fragment has everything.
fn tool_call(choice: u32, slot: u32, call: ToolCall) -> Part {
    Part::ToolCall {
        choice,
        slot,
        id: Some(call.id),
        name: Some(call.function.name),
        arguments: Some(call.function.arguments),
    }
}
