//! A whole answer: a message of blocks → one choice.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::words::{call_id, finish_reason, read_usage};
use crate::{
    base::keys::random_id,
    wire::{
        chat::{Answer, Choice, FinishReason, ToolCall},
        error::UpstreamError,
        json_text::JsonText,
    },
};

#[derive(Deserialize)]
struct Written {
    content: Option<Vec<Block>>,
    stop_reason: Option<String>,
    usage: Option<Value>,
    error: Option<Value>,
}

/// A block of any kind. Those that are neither text nor a call (thoughts, the provider's own
/// tools) are not for the caller.
#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<JsonText>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Box<RawValue>>,
}

pub fn read(body: &[u8]) -> Result<Answer, UpstreamError> {
    let written: Written =
        serde_json::from_slice(body).map_err(|error| UpstreamError::unreadable(&error))?;
    if let Some(error) = written.error {
        return Err(UpstreamError::reported(&error));
    }
    let blocks = written
        .content
        .ok_or_else(|| UpstreamError::Malformed("an answer without content".into()))?;
    let (mut texts, mut tool_calls) = (Vec::new(), Vec::new());
    for block in blocks {
        match block.kind.as_str() {
            "text" => texts.extend(block.text.filter(|text| !text.is_empty())),
            "tool_use" => tool_calls.push(read_call(block)?),
            _ => {}
        }
    }
    let word = written.stop_reason.unwrap_or_default();
    let finish = finish_reason(&word, !tool_calls.is_empty())?;
    // An empty answer is still one; a call or a refusal stands without.
    let may_lack_text = !tool_calls.is_empty() || finish == FinishReason::ContentFilter;
    let content = (!texts.is_empty() || !may_lack_text).then(|| joined(texts));
    let choice = Choice {
        index: 0,
        content,
        tool_calls,
        finish,
        logprobs: None,
    };
    Ok(Answer {
        choices: vec![choice],
        usage: written.usage.as_ref().and_then(read_usage),
    })
}

/// One text of many: blocks of a single answer are pieces, not paragraphs.
fn joined(mut texts: Vec<JsonText>) -> JsonText {
    if texts.len() == 1 {
        return texts.remove(0);
    }
    let text: String = texts.iter().map(JsonText::decode).collect();
    JsonText::new(&text)
}

fn read_call(block: Block) -> Result<ToolCall, UpstreamError> {
    let name = block.name.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| UpstreamError::Malformed("a tool call without a name".into()))?;
    let id = block.id.and_then(call_id);
    let arguments = block.input.as_deref().map_or("{}", RawValue::get);
    Ok(ToolCall::new(
        id.unwrap_or_else(|| random_id("call_")),
        name,
        JsonText::new(arguments),
    ))
}
