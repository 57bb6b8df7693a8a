//! A streamed answer: the API's events → [`Part`]s.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::words::{call_id, finish_reason, read_usage};
use crate::{
    upstream::stream::{Then, Translator},
    wire::{error::UpstreamError, json_text::JsonText, part::Part},
};

/// What must be remembered from one event to the next.
#[derive(Default)]
pub struct Messages {
    /// The calls so far; a call's place is its number for us.
    calls: Vec<Call>,
    stop_reason: Option<String>,
    counts: Counts,
    ended: bool,
}

struct Call {
    /// The API's number for it, which counts texts and thoughts too.
    block: u64,
    /// Its arguments as they stood at its beginning, until a fragment or its end replaces them.
    at_start: Option<JsonText>,
}

/// The counts as far as they are known: those of the beginning, overwritten by later ones.
#[derive(Default)]
struct Counts {
    known: Map<String, Value>,
    /// The output is counted at the end; what is said of it before is a beginning.
    is_final: bool,
}

/// An event of any kind: the API tells them apart by `type`.
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

impl Translator for Messages {
    fn is_finished(&self) -> bool {
        self.ended
    }

    fn on_event(&mut self, data: &[u8], parts: &mut VecDeque<Part>) -> Result<Then, UpstreamError> {
        if data.is_empty() {
            return Ok(Then::GoOn);
        }
        let event: Event =
            serde_json::from_slice(data).map_err(|error| UpstreamError::unreadable(&error))?;
        if let Some(error) = &event.error {
            return Err(UpstreamError::reported(error));
        }
        match event.kind.as_deref().unwrap_or_default() {
            "error" => return Err(UpstreamError::reported(&Value::Null)),
            "message_start" => self.counts.add(event.message.and_then(|start| start.usage)),
            "content_block_start" => {
                self.on_block_start(event.index, event.content_block, parts)?;
            }
            "content_block_delta" => self.on_block_delta(event.index, event.delta, parts),
            "content_block_stop" => self.on_block_stop(event.index, parts),
            "message_delta" => {
                self.counts.end(event.usage);
                let stop_reason = event.delta.and_then(|delta| delta.stop_reason);
                self.stop_reason = stop_reason.or(self.stop_reason.take());
            }
            "message_stop" => {
                self.on_end(parts)?;
                return Ok(Then::End);
            }
            _ => {} // `ping`, and kinds that are yet to come
        }
        if parts.is_empty() {
            parts.push_back(Part::Silence);
        }
        Ok(Then::GoOn)
    }
}

impl Messages {
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
                    at_start: Some(JsonText::new(input)),
                });
                let id = block.id.and_then(call_id);
                parts.push_back(fragment(self.calls.len() - 1, id, name, None));
            }
            _ => {} // thoughts, and the provider's own tools
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
                    self.calls[slot].at_start = None;
                    parts.push_back(fragment(slot, None, None, Some(arguments)));
                }
            }
            _ => {} // thoughts, their signatures, citations
        }
    }

    /// A call that got no fragments has the arguments it began with: usually none, which is `{}`.
    fn on_block_stop(&mut self, index: Option<u64>, parts: &mut VecDeque<Part>) {
        let Some(slot) = self.slot(index) else { return };
        if let Some(arguments) = self.calls[slot].at_start.take() {
            parts.push_back(fragment(slot, None, None, Some(arguments)));
        }
    }

    /// Only here: an answer that breaks off before its last word has neither an end nor a price.
    fn on_end(&mut self, parts: &mut VecDeque<Part>) -> Result<(), UpstreamError> {
        self.ended = true;
        let counts = std::mem::take(&mut self.counts);
        parts.extend(counts.read().map(Part::Usage));
        let called_tools = !self.calls.is_empty();
        let reason = self.stop_reason.as_deref();
        let reason = reason.map(|word| finish_reason(word, called_tools));
        parts.extend(
            reason
                .transpose()?
                .map(|reason| Part::Finish { choice: 0, reason }),
        );
        Ok(())
    }

    /// Our number for the call in this block, if it is one.
    fn slot(&self, block: Option<u64>) -> Option<usize> {
        let block = block.unwrap_or_default();
        self.calls.iter().rposition(|call| call.block == block)
    }
}

impl Counts {
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
        self.is_final |= output.is_some_and(|count| !count.is_null());
        self.add(counts);
    }

    fn read(self) -> Option<crate::wire::chat::Usage> {
        let known = Value::Object(self.known);
        read_usage(&known).filter(|_| self.is_final)
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
