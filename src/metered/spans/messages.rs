//! Prompts and answers in the form of the conventions for generative AI, for operators who want them in their traces.

use serde_json::{Value, json};

use crate::{
    telemetry::Span,
    wire::{
        chat::{Answer, Choice, Message, ToolCall},
        json_text::JsonText,
    },
};

/// Longest prompts, answers or arguments in a span, in bytes; of longer ones only the length is there.
pub(super) const LONGEST: usize = 128 << 10;
/// How many bytes as they were sent can be one byte in a span: `\u0041` is `A`.
const MOST_ESCAPED: usize = 6;

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

pub(super) fn set_input(span: &mut Span, messages: &[Message]) {
    let size = |message: &Message| size(message.content.as_ref(), &message.tool_calls);
    set_list(span, "gen_ai.input.messages", messages, size, input);
}

fn input(message: &Message) -> Value {
    let text = message.content.as_ref().map(JsonText::decode);
    let parts = match (&message.tool_call_id, text) {
        (Some(id), text) => {
            vec![json!({ "type": "tool_call_response", "id": id, "response": text })]
        }
        (None, text) => parts(text, message.tool_calls.iter().map(call)),
    };
    json!({ "role": message.role.as_str(), "parts": parts })
}

pub(super) fn set_output(span: &mut Span, answer: &Answer) {
    let size = |choice: &Choice| size(choice.content.as_ref(), &choice.tool_calls);
    set_list(
        span,
        "gen_ai.output.messages",
        &answer.choices,
        size,
        output,
    );
}

fn output(choice: &Choice) -> Value {
    let text = choice.content.as_ref().map(JsonText::decode);
    let parts = parts(text, choice.tool_calls.iter().map(call));
    json!({ "role": "assistant", "parts": parts, "finish_reason": choice.finish.as_str() })
}

/// Sets a list of messages. What is too long is not built first: a request may have megabytes.
fn set_list<T>(
    span: &mut Span,
    key: &str,
    messages: &[T],
    size: impl Fn(&T) -> usize,
    json: fn(&T) -> Value,
) {
    match list(messages, &size, json) {
        Ok(text) => span.set(key, text),
        Err(built) => set_omitted(span, key, built.max(messages.iter().map(size).sum())),
    }
}

/// The list as JSON. Stops where it is too long, and returns how many bytes there are up to there.
fn list<T>(
    messages: &[T],
    size: &impl Fn(&T) -> usize,
    json: fn(&T) -> Value,
) -> Result<String, usize> {
    let mut text = String::from("[");
    for message in messages {
        let least = size(message) / MOST_ESCAPED;
        if text.len() + least > LONGEST {
            return Err(text.len() + least);
        }
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&json(message).to_string());
    }
    text.push(']');
    if text.len() > LONGEST {
        return Err(text.len());
    }
    Ok(text)
}

/// The bytes of a message's texts as they were sent.
fn size(content: Option<&JsonText>, calls: &[ToolCall]) -> usize {
    let content = content.map_or(0, |text| text.as_json().len());
    let calls = calls.iter();
    let calls = calls.map(|call| call.function.arguments.as_json().len());
    content + calls.sum::<usize>()
}

pub(super) fn parts(text: Option<String>, calls: impl Iterator<Item = Value>) -> Vec<Value> {
    let text = text.map(|text| json!({ "type": "text", "content": text }));
    text.into_iter().chain(calls).collect()
}

fn call(call: &ToolCall) -> Value {
    let arguments = call.function.arguments.decode();
    json!({ "type": "tool_call", "id": call.id, "name": call.function.name, "arguments": arguments })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_is_too_long_is_not_built() {
        thread_local! { static BUILT: Cell<usize> = const { Cell::new(0) } }
        let json = |text: &String| {
            BUILT.set(BUILT.get() + 1);
            Value::from(text.as_str())
        };
        let listed = |texts: &[String]| {
            BUILT.set(0);
            let listed = list(texts, &String::len, json);
            (listed, BUILT.get())
        };
        let (whole, built) = listed(&["a".into(), "b".into()]);
        assert_eq!((whole.as_deref(), built), (Ok(r#"["a","b"]"#), 2));
        let many = vec!["x".repeat(1000); 10_000];
        let (omitted, built) = listed(&many);
        assert!(omitted.is_err() && built < 140, "{built} were built");
        let (omitted, built) = listed(&["x".repeat(LONGEST * MOST_ESCAPED + 6)]);
        assert!(omitted.is_err() && built == 0);
        let (omitted, _) = listed(&["x".repeat(LONGEST)]);
        assert_eq!(omitted, Err(LONGEST + 4), "with its quotes and brackets");
    }
}
