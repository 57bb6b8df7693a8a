//! Translates a streamed response: chunks → [`Part`]s.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::fields::{self, Arguments, is_readable};
use crate::{
    upstream::stream::{AfterEvent, Translator},
    wire::{error::UpstreamError, json_text::JsonText, part::Part},
};

/// Stream translator; its state is what later chunks depend on.
pub(crate) struct ChunkTranslator {
    n: u32,
    /// Indexes of choices that have called a tool.
    called_tools: Vec<u32>,
    /// Indexes of choices that have finished.
    finished: Vec<u32>,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<ChunkChoice<'a>>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ChunkChoice<'a> {
    index: Option<u32>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    finish_reason: Option<String>,
    logprobs: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    content: Option<JsonText>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    tool_calls: Option<Vec<ToolDelta>>,
}

#[derive(Deserialize)]
struct ToolDelta {
    index: Option<u32>,
    id: Option<String>,
    function: Option<FunctionDelta>,
}

#[derive(Deserialize)]
struct FunctionDelta {
    name: Option<String>,
    arguments: Option<Arguments>,
}

impl Translator for ChunkTranslator {
    fn is_finished(&self) -> bool {
        self.finished.len() >= self.n as usize
    }

    fn on_event(
        &mut self,
        data: &[u8],
        parts: &mut VecDeque<Part>,
    ) -> Result<AfterEvent, UpstreamError> {
        if data.trim_ascii() == b"[DONE]" {
            return Ok(AfterEvent::End);
        }
        if data.is_empty() {
            return Ok(AfterEvent::Continue);
        }
        let chunk: Chunk =
            serde_json::from_slice(data).map_err(|error| UpstreamError::unreadable(&error))?;
        if let Some(error) = chunk.error {
            let error = serde_json::from_str(error.get()).unwrap_or_default();
            return Err(UpstreamError::reported(&error));
        }
        for choice in chunk.choices.unwrap_or_default() {
            self.on_choice(choice, parts)?;
        }
        let usage = chunk.usage.map(fields::read_usage).transpose()?;
        parts.extend(usage.flatten().map(Part::Usage));
        if parts.is_empty() {
            parts.push_back(Part::Silence);
        }
        Ok(AfterEvent::Continue)
    }
}

impl ChunkTranslator {
    /// For a response with `n` choices.
    pub(crate) fn new(n: u32) -> Self {
        Self {
            n,
            called_tools: Vec::new(),
            finished: Vec::new(),
        }
    }

    fn on_choice(
        &mut self,
        choice: ChunkChoice<'_>,
        parts: &mut VecDeque<Part>,
    ) -> Result<(), UpstreamError> {
        let index = choice.index.unwrap_or(0);
        let mut refused = false;
        if let Some(delta) = choice.delta {
            refused = delta.refusal.is_some_and(|text| text.get() != "\"\"");
            let logprobs = choice.logprobs.filter(|json| is_readable(json));
            let logprobs = logprobs.map(on_one_line);
            match delta.content {
                Some(text) if !text.is_empty() || logprobs.is_some() => {
                    parts.push_back(Part::Content {
                        choice: index,
                        text,
                        logprobs,
                    });
                }
                _ => {}
            }
            for call in delta.tool_calls.unwrap_or_default() {
                remember(&mut self.called_tools, index);
                parts.push_back(tool_fragment(index, call));
            }
        }
        let called_tools = self.called_tools.contains(&index);
        let reason = fields::finish_reason(choice.finish_reason.as_deref(), called_tools)?;
        if let Some(reason) = reason {
            remember(&mut self.finished, index);
            parts.push_back(Part::Finish {
                choice: index,
                reason,
            });
        } else if refused {
            let reason = crate::wire::chat::FinishReason::ContentFilter;
            parts.push_back(Part::Finish {
                choice: index,
                reason,
            });
        }
        Ok(())
    }
}

/// Adds an index to a list, which is bounded in case a provider invents choices without end.
fn remember(choices: &mut Vec<u32>, choice: u32) {
    if choices.len() < 128 && !choices.contains(&choice) {
        choices.push(choice);
    }
}

fn tool_fragment(choice: u32, call: ToolDelta) -> Part {
    let (name, arguments) = call.function.map_or((None, None), |function| {
        (
            function.name,
            function.arguments.map(|Arguments(text)| text),
        )
    });
    Part::ToolCall {
        choice,
        slot: call.index.unwrap_or(0),
        id: call.id.filter(|id| !id.is_empty()),
        name: name.filter(|name| !name.is_empty()),
        arguments: arguments.filter(|arguments| !arguments.is_empty()),
    }
}

/// Removes line breaks from JSON, because they would end the event that is sent to the caller.
fn on_one_line(raw: Box<RawValue>) -> Box<RawValue> {
    if !raw.get().contains(['\n', '\r']) {
        return raw;
    }
    let value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    serde_json::value::to_raw_value(&value).unwrap_or(raw)
}
