//! The conversation: messages → a system prompt, and turns that alternate between two speakers.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::wire::{
    chat::{Message, Role, ToolCall},
    json_text::JsonText,
};

/// The user's first words, where a conversation has none: the API wants some.
pub const OPENING: &str = "(The conversation begins.)";

#[derive(Serialize)]
pub struct Turn<'a> {
    role: Speaker,
    content: Vec<Block<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Speaker {
    User,
    Assistant,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: Cow<'a, JsonText>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: &'a str,
        input: Box<RawValue>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<&'a JsonText>,
    },
}

/// The system message, which has a place of its own, and an instruction of ours after it.
pub fn system_prompt(messages: &[Message], instruction: Option<&str>) -> Option<JsonText> {
    let system = messages.iter().filter(|m| m.role == Role::System);
    let written = system.filter_map(written_text).cloned();
    let prompts: Vec<_> = written.chain(instruction.map(JsonText::new)).collect();
    (!prompts.is_empty()).then(|| JsonText::join_lines(&prompts))
}

/// Everything else, in its order. What one speaker says in several messages is one turn.
///
/// A tool's result is the user's to tell. Results come first in their turn, as the API wants it,
/// because they directly follow the calls they answer.
pub fn turns(messages: &[Message]) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn> = Vec::new();
    for message in messages {
        let role = match message.role {
            Role::System => continue,
            Role::User | Role::Tool => Speaker::User,
            Role::Assistant => Speaker::Assistant,
        };
        let blocks = blocks(message);
        match turns.last_mut().filter(|last| last.role == role) {
            Some(last) => last.content.extend(blocks),
            None if blocks.is_empty() => {}
            None => turns.push(Turn {
                role,
                content: blocks,
            }),
        }
    }
    if turns.first().is_none_or(|turn| turn.role != Speaker::User) {
        turns.insert(0, opening());
    }
    turns
}

fn opening() -> Turn<'static> {
    let text = Cow::Owned(JsonText::new(OPENING));
    Turn {
        role: Speaker::User,
        content: vec![Block::Text { text }],
    }
}

fn blocks(message: &Message) -> Vec<Block<'_>> {
    let text = written_text(message);
    if let Some(id) = &message.tool_call_id {
        return vec![Block::ToolResult {
            tool_use_id: allowed_id(id),
            content: text,
        }];
    }
    let text = text.map(|text| Block::Text {
        text: Cow::Borrowed(text),
    });
    let calls = message.tool_calls.iter().map(tool_use);
    text.into_iter().chain(calls).collect()
}

/// A message's text, if there is something to read in it: the API refuses blank ones.
fn written_text(message: &Message) -> Option<&JsonText> {
    message.content.as_ref().filter(|text| !is_blank(text))
}

fn is_blank(text: &JsonText) -> bool {
    // Most texts begin with a letter, and need not be decoded to see that.
    let begins_plainly = |c: char| !c.is_whitespace() && c != '\\' && c != '"';
    let first = text.as_json().chars().nth(1);
    !first.is_some_and(begins_plainly) && text.decode().trim().is_empty()
}

fn tool_use(call: &ToolCall) -> Block<'_> {
    Block::ToolUse {
        id: allowed_id(&call.id),
        name: &call.function.name,
        input: input(&call.function.arguments.decode()),
    }
}

/// Arguments are text to a chat and an object to the API. Text that is no object, which a model
/// may well have written, becomes one that holds it.
fn input(arguments: &str) -> Box<RawValue> {
    let object = serde_json::from_str::<Box<RawValue>>(arguments).ok();
    if let Some(object) = object.filter(|json| json.get().starts_with('{')) {
        return object;
    }
    let wrapped = if arguments.trim().is_empty() {
        serde_json::json!({})
    } else {
        serde_json::json!({ "arguments": arguments })
    };
    serde_json::value::to_raw_value(&wrapped).expect("an object of text serialises")
}

/// The ID in the letters that the API allows. Histories that began with another provider have
/// others, and a call and its result must still meet.
fn allowed_id(id: &str) -> Cow<'_, str> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !id.is_empty() && id.bytes().all(is_allowed) {
        return Cow::Borrowed(id);
    }
    let letters = id.bytes().map(|byte| match byte {
        byte if is_allowed(byte) => char::from(byte).to_string(),
        byte => format!("-{byte:02x}"),
    });
    Cow::Owned(std::iter::once("call_".to_owned()).chain(letters).collect())
}
