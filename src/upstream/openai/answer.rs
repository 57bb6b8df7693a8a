//! Parses a non-streamed response.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::fields::{Arguments, finish_reason, is_readable, read_usage};
use crate::{
    base::keys::random_id,
    wire::{
        chat::{Answer, Choice, FinishReason, ToolCall},
        error::UpstreamError,
        json_text::JsonText,
    },
};

#[derive(Deserialize)]
struct WireResponse<'a> {
    choices: Option<Vec<WireChoice>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct WireChoice {
    index: Option<u32>,
    message: WireMessage,
    finish_reason: Option<String>,
    logprobs: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct WireMessage {
    content: Option<JsonText>,
    tool_calls: Option<Vec<WireToolCall>>,
    refusal: Option<JsonText>,
}

#[derive(Deserialize)]
struct WireToolCall {
    id: Option<String>,
    function: WireFunction,
}

#[derive(Deserialize)]
struct WireFunction {
    name: String,
    arguments: Option<Arguments>,
}

/// Parses a response body; keeps at most the `n` choices that were requested.
pub(crate) fn read(body: &[u8], n: u32) -> Result<Answer, UpstreamError> {
    // Checks UTF-8 once for the whole body: `from_slice` would check every string on its own.
    let response = match str::from_utf8(body) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(body),
    };
    let response: WireResponse<'_> = response.map_err(|error| UpstreamError::unreadable(&error))?;
    if let Some(error) = response.error {
        return Err(UpstreamError::reported(&error));
    }
    let choices = (0..n).zip(response.choices.unwrap_or_default());
    let choices = choices.map(|(at, choice)| read_choice(at, choice));
    let mut choices: Vec<_> = choices.collect::<Result<_, _>>()?;
    choices.sort_by_key(|choice| choice.index); // built-in tools are run for the first choice
    if choices.is_empty() {
        return Err(UpstreamError::Malformed(
            "a response without choices".into(),
        ));
    }
    let usage = response.usage.map(read_usage).transpose()?;
    Ok(Answer {
        choices,
        usage: usage.flatten(),
        native: None,
    })
}

fn read_choice(at: u32, choice: WireChoice) -> Result<Choice, UpstreamError> {
    let message = choice.message;
    let calls = message.tool_calls.unwrap_or_default().into_iter();
    let tool_calls: Vec<_> = calls.map(read_call).collect();
    let called = !tool_calls.is_empty();
    let refusal = message.refusal.is_some_and(|text| !text.is_empty());
    let finish = match finish_reason(choice.finish_reason.as_deref(), called)? {
        _ if refusal && message.content.is_none() => FinishReason::ContentFilter,
        Some(reason) => reason,
        None if called => FinishReason::ToolCalls,
        None => FinishReason::Stop,
    };
    Ok(Choice {
        index: choice.index.unwrap_or(at),
        content: message.content.filter(|text| !called || !text.is_empty()),
        tool_calls,
        finish,
        logprobs: choice.logprobs.filter(|json| is_readable(json)),
    })
}

fn read_call(call: WireToolCall) -> ToolCall {
    let id = call.id.filter(|id| !id.is_empty());
    let arguments = call.function.arguments.map(|Arguments(text)| text);
    ToolCall::new(
        id.unwrap_or_else(|| random_id("call_")),
        call.function.name,
        // Callers expect a JSON object in a string, also for a call without arguments.
        arguments
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| JsonText::new("{}")),
    )
}
