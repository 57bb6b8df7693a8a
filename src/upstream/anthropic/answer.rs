//! Parses a non-streamed response: a message of content blocks → one choice.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::fields::{call_id, finish_reason, read_usage};
use crate::{
    base::keys::random_id,
    wire::{
        chat::{Answer, Choice, FinishReason, ToolCall},
        error::UpstreamError,
        json_text::JsonText,
    },
};

#[derive(Deserialize)]
struct WireMessage {
    content: Option<Vec<Block>>,
    stop_reason: Option<String>,
    usage: Option<Value>,
    error: Option<Value>,
}

/// A content block of any kind. Only text and tool calls reach the caller, not thinking or the provider's own tools.
#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<JsonText>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Box<RawValue>>,
}

/// Parses a response body.
pub(crate) fn read(body: &[u8]) -> Result<Answer, UpstreamError> {
    let message: WireMessage =
        serde_json::from_slice(body).map_err(|error| UpstreamError::unreadable(&error))?;
    if let Some(error) = message.error {
        return Err(UpstreamError::reported(&error));
    }
    let blocks = message
        .content
        .ok_or_else(|| UpstreamError::Malformed("a response without content".into()))?;
    let (mut texts, mut tool_calls) = (Vec::new(), Vec::new());
    for block in blocks {
        match block.kind.as_str() {
            "text" => texts.extend(block.text.filter(|text| !text.is_empty())),
            "tool_use" => tool_calls.push(read_call(block)?),
            _ => {}
        }
    }
    let stop_reason = message.stop_reason.unwrap_or_default();
    let finish = finish_reason(&stop_reason, !tool_calls.is_empty())?;
    // Content is an empty text rather than null, except beside tool calls and refusals.
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
        usage: message.usage.as_ref().and_then(read_usage),
        native: None,
    })
}

/// Parses the response to a request that counts tokens.
pub(crate) fn read_count(body: &[u8]) -> Result<u64, UpstreamError> {
    #[derive(Deserialize)]
    struct Count {
        input_tokens: u64,
    }
    let count: Count =
        serde_json::from_slice(body).map_err(|error| UpstreamError::unreadable(&error))?;
    Ok(count.input_tokens)
}

/// Joins text blocks without a separator: the blocks of one response are pieces of one text.
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
