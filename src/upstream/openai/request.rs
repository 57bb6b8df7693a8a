//! Writes the request body.

use serde::Serialize;
use serde_json::Value;

use crate::{
    config::{MaxTokensField, Quirks},
    prompt::ChatCall,
    wire::{
        chat::{Message, ResponseFormat, Schema, Settings, Tool, ToolChoice},
        json_writer::JsonWriter,
    },
};

/// Estimated size of a request without its messages, for the buffer's capacity.
const FIELDS_BYTES: usize = 512;

/// The fields sent upstream in addition to the model and the messages. No other field of the caller's is sent.
#[derive(Serialize)]
struct Fields<'a> {
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
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

pub(crate) fn write(call: &ChatCall, model: &str, stream: bool, quirks: &Quirks) -> Vec<u8> {
    let budget = |field| {
        let named = quirks.max_tokens_field == field;
        call.budget.max_tokens.filter(|_| named)
    };
    let sends_tools = quirks.builtin_tools || !call.tools.are_built_in();
    let fields = Fields {
        stream,
        // Always requested: without usage a stream cannot be billed.
        stream_options: stream.then_some(StreamOptions {
            include_usage: true,
        }),
        max_tokens: budget(MaxTokensField::MaxTokens),
        max_completion_tokens: budget(MaxTokensField::MaxCompletionTokens),
        settings: &call.settings,
        n: call.n,
        tools: if sends_tools { &call.tools } else { &[] },
        tool_choice: call
            .tool_choice
            .as_ref()
            .filter(|_| sends_tools)
            .map(tool_choice),
        parallel_tool_calls: call.parallel_tool_calls.filter(|_| sends_tools),
        response_format: call.response_format.as_ref(),
        reasoning_effort: call.reasoning_effort,
        thinking: call.thinking.as_ref(),
        user: &call.user,
    };
    let message_bytes = call
        .messages
        .iter()
        .map(Message::estimated_bytes)
        .sum::<usize>();
    let mut json = JsonWriter::with_capacity(message_bytes + FIELDS_BYTES);
    json.raw("{\"model\":").string(model).raw(",\"messages\":");
    json.list(&call.messages, Message::write);
    if quirks.omit.is_empty() && quirks.rename.is_empty() {
        json.further_fields(&fields);
    } else {
        json.further_fields(&with_quirks(&fields, quirks));
    }
    json.into_bytes()
}

/// The fields with the configured omissions and renames applied.
fn with_quirks(fields: &Fields<'_>, quirks: &Quirks) -> Value {
    let mut fields = serde_json::to_value(fields).expect("strings, numbers and JSON serialise");
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|name, _| !quirks.omit.contains(name));
        for (from, to) in &quirks.rename {
            if let Some(value) = fields.remove(from) {
                fields.insert(to.clone(), value);
            }
        }
    }
    fields
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
