//! Prompts and answers in the form of the conventions for generative AI, for operators who want them in their traces.

use serde_json::{Value, json};

use crate::{
    telemetry::Span,
    wire::{
        chat::{Answer, Message, ToolCall},
        json_text::JsonText,
    },
};

/// Longest prompts, answers or arguments in a span, in bytes; of longer ones only the length is there.
pub(super) const LONGEST: usize = 128 << 10;

pub(super) fn set(span: &mut Span, key: &str, messages: &Value) {
    set_text(span, key, messages.to_string());
}

pub(super) fn set_text(span: &mut Span, key: &str, text: String) {
    if text.len() > LONGEST {
        set_omitted(span, key, text.len());
    } else {
        span.set(key, text);
    }
}

/// Sets how long something is that is too long for a span.
pub(super) fn set_omitted(span: &mut Span, key: &str, bytes: usize) {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    span.set(&format!("{key}.omitted_bytes"), bytes);
}

pub(super) fn input(messages: &[Message]) -> Value {
    let messages = messages.iter().map(|message| {
        let text = message.content.as_ref().map(JsonText::decode);
        let parts = match (&message.tool_call_id, text) {
            (Some(id), text) => {
                vec![json!({ "type": "tool_call_response", "id": id, "response": text })]
            }
            (None, text) => parts(text, message.tool_calls.iter().map(call)),
        };
        json!({ "role": message.role.as_str(), "parts": parts })
    });
    messages.collect()
}

pub(super) fn output(answer: &Answer) -> Value {
    let choices = answer.choices.iter().map(|choice| {
        let text = choice.content.as_ref().map(JsonText::decode);
        let parts = parts(text, choice.tool_calls.iter().map(call));
        json!({ "role": "assistant", "parts": parts, "finish_reason": choice.finish.as_str() })
    });
    choices.collect()
}

pub(super) fn parts(text: Option<String>, calls: impl Iterator<Item = Value>) -> Vec<Value> {
    let text = text.map(|text| json!({ "type": "text", "content": text }));
    text.into_iter().chain(calls).collect()
}

fn call(call: &ToolCall) -> Value {
    let arguments = call.function.arguments.decode();
    json!({ "type": "tool_call", "id": call.id, "name": call.function.name, "arguments": arguments })
}
