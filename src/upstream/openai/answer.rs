//! A whole answer, as OpenAI-compatible servers give it.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::words::{Arguments, finish_reason, read_usage};
use crate::{
    base::keys::random_id,
    wire::{
        chat::{Answer, Choice, FinishReason, ToolCall},
        error::UpstreamError,
        json_text::JsonText,
    },
};

#[derive(Deserialize)]
struct Written<'a> {
    choices: Option<Vec<WrittenChoice>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct WrittenChoice {
    index: Option<u32>,
    message: WrittenMessage,
    finish_reason: Option<String>,
    logprobs: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct WrittenMessage {
    content: Option<JsonText>,
    tool_calls: Option<Vec<WrittenCall>>,
    refusal: Option<JsonText>,
}

#[derive(Deserialize)]
struct WrittenCall {
    id: Option<String>,
    function: WrittenFunction,
}

#[derive(Deserialize)]
struct WrittenFunction {
    name: String,
    arguments: Option<Arguments>,
}

/// The answer, with at most the `n` choices that were asked for.
pub fn read(body: &[u8], n: u32) -> Result<Answer, UpstreamError> {
    // As text where all of it is text: then it need not be asked again of every part.
    let written = match str::from_utf8(body) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(body),
    };
    let written: Written<'_> = written.map_err(|error| UpstreamError::unreadable(&error))?;
    if let Some(error) = written.error {
        return Err(UpstreamError::reported(&error));
    }
    let choices = (0..n).zip(written.choices.unwrap_or_default());
    let choices = choices.map(|(at, choice)| read_choice(at, choice));
    let mut choices: Vec<_> = choices.collect::<Result<_, _>>()?;
    choices.sort_by_key(|choice| choice.index); // the first one decides about tools
    if choices.is_empty() {
        return Err(UpstreamError::Malformed("an answer without choices".into()));
    }
    let usage = written.usage.map(read_usage).transpose()?;
    Ok(Answer {
        choices,
        usage: usage.flatten(),
    })
}

fn read_choice(at: u32, choice: WrittenChoice) -> Result<Choice, UpstreamError> {
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
        logprobs: choice.logprobs,
    })
}

fn read_call(call: WrittenCall) -> ToolCall {
    let id = call.id.filter(|id| !id.is_empty());
    let arguments = call.function.arguments.map(|Arguments(text)| text);
    ToolCall::new(
        id.unwrap_or_else(|| random_id("call_")),
        call.function.name,
        // JSON in a string, always: a call without arguments is one with none.
        arguments
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| JsonText::new("{}")),
    )
}
