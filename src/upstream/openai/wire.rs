//! The format of OpenAI-compatible servers: the request as we write it, the answer as they do.
//!
//! Answers are read leniently (servers disagree about nulls, missing fields and integers) and
//! strictly where money or meaning depends on them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::{
    auth::random_id,
    chat::ChatCall,
    upstream::UpstreamError,
    wire::{
        chat::{
            Answer, Choice, FinishReason, Message, ResponseFormat, Schema, Settings, Tool,
            ToolCall, ToolChoice, Usage,
        },
        json_text::JsonText,
    },
};

/// The whole body that goes upstream: these fields and no others, whatever the caller sent.
#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    messages: &'a [Message],
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(flatten)]
    settings: &'a Settings,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<u32>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tools: &'a [Tool],
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<&'a ResponseFormat>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<&'a Schema>,
    user: &'a str,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

pub fn request(call: &ChatCall, model: &str, stream: bool) -> Vec<u8> {
    let request = Request {
        model,
        messages: &call.messages,
        stream,
        // Always: what is not counted cannot be billed.
        stream_options: stream.then_some(StreamOptions {
            include_usage: true,
        }),
        max_tokens: call.max_tokens,
        settings: &call.settings,
        n: (call.n > 1).then_some(call.n),
        tools: &call.tools,
        tool_choice: call.tool_choice.as_ref().map(tool_choice),
        parallel_tool_calls: call.parallel_tool_calls,
        response_format: call.response_format.as_ref(),
        reasoning_effort: call.reasoning_effort,
        thinking: call.thinking.as_ref(),
        user: &call.user,
    };
    serde_json::to_vec(&request).expect("strings, numbers and JSON serialise")
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::None => "none".into(),
        ToolChoice::Auto | ToolChoice::Allowed(_) => "auto".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Named(name) => {
            serde_json::json!({ "type": "function", "function": { "name": name } })
        }
    }
}

/// Some servers label JSON as text; a page of HTML is no answer, whatever its status.
pub fn require_json(content_type: &str) -> Result<(), UpstreamError> {
    if content_type.starts_with("text/html") || content_type.starts_with("text/event-stream") {
        return Err(UpstreamError::Malformed(format!(
            "an answer of type {content_type:?}"
        )));
    }
    Ok(())
}

pub fn read_answer(body: &[u8]) -> Result<Answer, UpstreamError> {
    #[derive(Deserialize)]
    struct Written {
        choices: Option<Vec<WrittenChoice>>,
        usage: Option<Value>,
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
        arguments: Option<JsonText>,
    }
    let written: Written =
        serde_json::from_slice(body).map_err(|error| UpstreamError::unreadable(&error))?;
    if let Some(error) = written.error {
        return Err(UpstreamError::reported(&error));
    }
    let mut choices = Vec::new();
    for (at, choice) in written.choices.unwrap_or_default().into_iter().enumerate() {
        let message = choice.message;
        let calls = message
            .tool_calls
            .unwrap_or_default()
            .into_iter()
            .map(|call| {
                let id = call
                    .id
                    .filter(|id| !id.is_empty())
                    .unwrap_or_else(|| random_id("call_"));
                let arguments = call
                    .function
                    .arguments
                    .unwrap_or_else(|| JsonText::new("{}"));
                ToolCall::new(id, call.function.name, arguments)
            });
        let calls: Vec<_> = calls.collect();
        let refused =
            message.content.is_none() && message.refusal.is_some_and(|text| !text.is_empty());
        let finish = match finish_reason(choice.finish_reason.as_deref(), !calls.is_empty())? {
            _ if refused => FinishReason::ContentFilter,
            Some(reason) => reason,
            None if calls.is_empty() => FinishReason::Stop,
            None => FinishReason::ToolCalls,
        };
        choices.push(Choice {
            index: choice
                .index
                .unwrap_or_else(|| u32::try_from(at).unwrap_or_default()),
            content: message
                .content
                .filter(|text| calls.is_empty() || !text.is_empty()),
            tool_calls: calls,
            finish,
            logprobs: choice.logprobs,
        });
    }
    if choices.is_empty() {
        return Err(UpstreamError::Malformed("an answer without choices".into()));
    }
    Ok(Answer {
        choices,
        usage: written.usage.as_ref().and_then(read_usage),
    })
}

/// A provider's word for why it ended, in ours; `None` where it said nothing.
///
/// Words for failure are failures: an answer that went wrong must not look complete.
pub fn finish_reason(
    word: Option<&str>,
    called_tools: bool,
) -> Result<Option<FinishReason>, UpstreamError> {
    Ok(Some(match word {
        None | Some("") => return Ok(None),
        Some("length" | "max_tokens" | "model_length" | "max_length") => FinishReason::Length,
        Some("content_filter" | "safety" | "refusal") => FinishReason::ContentFilter,
        Some("tool_calls" | "function_call" | "tool_use") if called_tools => {
            FinishReason::ToolCalls
        }
        Some(
            word @ ("error"
            | "failed"
            | "abort"
            | "aborted"
            | "cancelled"
            | "timeout"
            | "insufficient_system_resource"),
        ) => return Err(UpstreamError::Reported(format!("finish_reason {word}"))),
        // `stop` and its many synonyms. Several servers say `stop` after tool calls too.
        Some(_) if called_tools => FinishReason::ToolCalls,
        Some(_) => FinishReason::Stop,
    }))
}

/// The token counts, if they are ones that can be billed: whole, not negative, not absurd.
pub fn read_usage(usage: &Value) -> Option<Usage> {
    let count = |value: &Value| u32::try_from(value.as_u64()?).ok().filter(|n| *n < 1 << 31);
    let optional = |value: Option<&Value>| match value {
        None | Some(Value::Null) => Some(0),
        Some(value) => count(value),
    };
    let cached = usage
        .pointer("/prompt_tokens_details/cached_tokens")
        .or_else(|| usage.get("prompt_cache_hit_tokens"));
    let usage = Usage {
        prompt: count(usage.get("prompt_tokens")?)?,
        completion: count(usage.get("completion_tokens")?)?,
        cached: optional(cached)?,
        reasoning: optional(usage.pointer("/completion_tokens_details/reasoning_tokens"))?,
    };
    (usage.cached <= usage.prompt).then_some(usage)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finish_reasons_are_a_closed_set() {
        use FinishReason::{ContentFilter, Length, Stop, ToolCalls};
        for (word, called, reason) in [
            ("stop", false, Stop),
            ("stop", true, ToolCalls),
            ("eos", false, Stop),
            ("end_turn", false, Stop),
            ("function_call", true, ToolCalls),
            ("tool_calls", false, Stop),
            ("length", true, Length),
            ("content_filter", false, ContentFilter),
        ] {
            assert_eq!(
                finish_reason(Some(word), called).unwrap(),
                Some(reason),
                "{word} {called}"
            );
        }
        assert!(finish_reason(Some("error"), false).is_err());
        assert_eq!(finish_reason(Some(""), false).unwrap(), None);
    }

    #[test]
    fn only_counts_that_can_be_billed_are_usage() {
        let usage = |prompt: Value, cached: Value| {
            read_usage(&json!({
                "prompt_tokens": prompt, "completion_tokens": 2,
                "prompt_tokens_details": { "cached_tokens": cached },
            }))
        };
        let read = usage(json!(9), json!(4)).unwrap();
        assert_eq!((read.prompt, read.cached, read.completion), (9, 4, 2));
        assert_eq!(usage(json!(9), json!(null)).unwrap().cached, 0);
        for (prompt, cached) in [
            (json!(-1), json!(0)),
            (json!(1.5), json!(0)),
            (json!("9"), json!(0)),
            (json!(1_u64 << 31), json!(0)),
            (json!(9), json!(10)),
        ] {
            assert_eq!(usage(prompt.clone(), cached), None, "{prompt}");
        }
    }
}
