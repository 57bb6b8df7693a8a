//! Translates a streamed response: the API's events → [`Part`]s.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::fields::{call_id, finish_reason, read_usage};
use crate::{
    upstream::stream::{AfterEvent, Translator},
    wire::{error::UpstreamError, json_text::JsonText, part::Part},
};

/// Stream translator; its state is what later events depend on.
#[derive(Default)]
pub(crate) struct EventTranslator {
    /// The tool calls so far; the index is the call's slot in [`Part::ToolCall`].
    calls: Vec<Call>,
    stop_reason: Option<String>,
    usage: UsageSoFar,
    ended: bool,
}

struct Call {
    /// Index of the content block, which also counts text and thinking blocks.
    block: u64,
    /// Arguments from `content_block_start`, until a fragment replaces them or the block ends.
    initial_arguments: Option<JsonText>,
}

/// Token counts so far: those of `message_start`, overwritten by those of `message_delta`.
#[derive(Default)]
struct UsageSoFar {
    known: Map<String, Value>,
    /// Whether `message_delta` has sent the output count; earlier ones are incomplete.
    has_final_output: bool,
}

/// An event of any kind; `type` says which.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: Option<String>,
    index: Option<u64>,
    message: Option<Start>,
    content_block: Option<Block>,
    delta: Option<Delta>,
    usage: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Start {
    usage: Option<Value>,
}

#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<JsonText>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<JsonText>,
    partial_json: Option<JsonText>,
    stop_reason: Option<String>,
}

impl Translator for EventTranslator {
    fn is_finished(&self) -> bool {
        self.ended
    }

    fn on_event(
        &mut self,
        data: &[u8],
        parts: &mut VecDeque<Part>,
    ) -> Result<AfterEvent, UpstreamError> {
        if data.is_empty() {
            return Ok(AfterEvent::Continue);
        }
        let event: Event =
            serde_json::from_slice(data).map_err(|error| UpstreamError::unreadable(&error))?;
        if let Some(error) = &event.error {
            return Err(UpstreamError::reported(error));
        }
        match event.kind.as_deref().unwrap_or_default() {
            "error" => return Err(UpstreamError::reported(&Value::Null)),
            "message_start" => self.usage.add(event.message.and_then(|start| start.usage)),
            "content_block_start" => {
                self.on_block_start(event.index, event.content_block, parts)?;
            }
            "content_block_delta" => self.on_block_delta(event.index, event.delta, parts),
            "content_block_stop" => self.on_block_stop(event.index, parts),
            "message_delta" => {
                self.usage.end(event.usage);
                let stop_reason = event.delta.and_then(|delta| delta.stop_reason);
                self.stop_reason = stop_reason.or(self.stop_reason.take());
            }
            "message_stop" => {
                self.on_end(parts)?;
                return Ok(AfterEvent::End);
            }
            _ => {} // `ping`, and kinds added in the future
        }
        if parts.is_empty() {
            parts.push_back(Part::Silence);
        }
        Ok(AfterEvent::Continue)
    }
}

impl EventTranslator {
    fn on_block_start(
        &mut self,
        index: Option<u64>,
        block: Option<Block>,
        parts: &mut VecDeque<Part>,
    ) -> Result<(), UpstreamError> {
        let Some(block) = block else { return Ok(()) };
        match block.kind.as_str() {
            "text" => parts.extend(block.text.and_then(content)),
            "tool_use" => {
                let name = block.name.filter(|name| !name.is_empty());
                if name.is_none() {
                    let message = "a tool call without a name";
                    return Err(UpstreamError::Malformed(message.into()));
                }
                let input = block.input.as_deref().map_or("{}", RawValue::get);
                self.calls.push(Call {
                    block: index.unwrap_or_default(),
                    initial_arguments: Some(JsonText::new(input)),
                });
                let id = block.id.and_then(call_id);
                parts.push_back(fragment(self.calls.len() - 1, id, name, None));
            }
            _ => {} // thinking, and the provider's own tools
        }
        Ok(())
    }

    fn on_block_delta(
        &mut self,
        index: Option<u64>,
        delta: Option<Delta>,
        parts: &mut VecDeque<Part>,
    ) {
        let Some(delta) = delta else { return };
        match delta.kind.as_deref().unwrap_or_default() {
            "text_delta" => parts.extend(delta.text.and_then(content)),
            "input_json_delta" => {
                let arguments = delta.partial_json.filter(|json| !json.is_empty());
                if let (Some(arguments), Some(slot)) = (arguments, self.slot(index)) {
                    self.calls[slot].initial_arguments = None;
                    parts.push_back(fragment(slot, None, None, Some(arguments)));
                }
            }
            _ => {} // thinking, its signatures, citations
        }
    }

    /// Sends the initial arguments of a call that got no fragments: usually `{}`, for none.
    fn on_block_stop(&mut self, index: Option<u64>, parts: &mut VecDeque<Part>) {
        let Some(slot) = self.slot(index) else { return };
        if let Some(arguments) = self.calls[slot].initial_arguments.take() {
            parts.push_back(fragment(slot, None, None, Some(arguments)));
        }
    }

    /// Emits usage and finish reason, only at `message_stop`: a stream that was cut off has neither.
    fn on_end(&mut self, parts: &mut VecDeque<Part>) -> Result<(), UpstreamError> {
        self.ended = true;
        let usage = std::mem::take(&mut self.usage);
        parts.extend(usage.read().map(Part::Usage));
        let called_tools = !self.calls.is_empty();
        let reason = self.stop_reason.as_deref();
        let reason = reason.map(|reason| finish_reason(reason, called_tools));
        parts.extend(
            reason
                .transpose()?
                .map(|reason| Part::Finish { choice: 0, reason }),
        );
        Ok(())
    }

    /// The slot of the call in this content block, if the block is a call.
    fn slot(&self, block: Option<u64>) -> Option<usize> {
        let block = block.unwrap_or_default();
        self.calls.iter().rposition(|call| call.block == block)
    }
}

impl UsageSoFar {
    fn add(&mut self, counts: Option<Value>) {
        if let Some(Value::Object(counts)) = counts {
            let known = counts.into_iter().filter(|(_, count)| !count.is_null());
            self.known.extend(known);
        }
    }

    fn end(&mut self, counts: Option<Value>) {
        let output = counts
            .as_ref()
            .and_then(|counts| counts.get("output_tokens"));
        self.has_final_output |= output.is_some_and(|count| !count.is_null());
        self.add(counts);
    }

    fn read(self) -> Option<crate::wire::chat::Usage> {
        let known = Value::Object(self.known);
        read_usage(&known).filter(|_| self.has_final_output)
    }
}

fn content(text: JsonText) -> Option<Part> {
    (!text.is_empty()).then_some(Part::Content {
        choice: 0,
        text,
        logprobs: None,
    })
}

fn fragment(
    slot: usize,
    id: Option<String>,
    name: Option<String>,
    arguments: Option<JsonText>,
) -> Part {
    Part::ToolCall {
        choice: 0,
        slot: u32::try_from(slot).unwrap_or(u32::MAX),
        id,
        name,
        arguments,
    }
}
