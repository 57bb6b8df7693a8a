//! Translates chat messages into a system prompt and turns that alternate between user and assistant.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::wire::{
    chat::{Message, Role, ToolCall},
    json_text::JsonText,
    messages::input_object,
};

/// Text of the first user turn if the conversation does not begin with one, which the API requires.
pub(crate) const PLACEHOLDER_TEXT: &str = "(The conversation begins.)";

#[derive(Serialize)]
pub(crate) struct Turn<'a> {
    role: TurnRole,
    content: Vec<Block<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum TurnRole {
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

/// The text of the `system` field: the system messages at the start, followed by the gateway's own instruction.
pub(crate) fn system_prompt(messages: &[Message], instruction: Option<&str>) -> Option<JsonText> {
    let system = messages.iter().take_while(|m| m.role == Role::System);
    let texts = system.filter_map(non_blank_text).cloned();
    let prompts: Vec<_> = texts.chain(instruction.map(JsonText::new)).collect();
    (!prompts.is_empty()).then(|| JsonText::join_lines(&prompts))
}

/// All messages but the system prompt, in order. Consecutive messages of one role become one turn. A system message in
/// the middle is a text of the user's turn, where it is: not all models of the API take that role.
///
/// Tool results belong to the user's turn. They come first in it, as the API requires, because in a chat they directly
/// follow the calls.
pub(crate) fn turns(messages: &[Message]) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn> = Vec::new();
    let messages = messages.iter().skip_while(|m| m.role == Role::System);
    for message in messages {
        let role = match message.role {
            Role::User | Role::Tool | Role::System => TurnRole::User,
            Role::Assistant => TurnRole::Assistant,
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
    if turns.first().is_none_or(|turn| turn.role != TurnRole::User) {
        turns.insert(0, placeholder_turn());
    }
    turns
}

fn placeholder_turn() -> Turn<'static> {
    let text = Cow::Owned(JsonText::new(PLACEHOLDER_TEXT));
    Turn {
        role: TurnRole::User,
        content: vec![Block::Text { text }],
    }
}

fn blocks(message: &Message) -> Vec<Block<'_>> {
    let text = non_blank_text(message);
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

/// A message's text, unless it is blank: the API refuses blank texts.
fn non_blank_text(message: &Message) -> Option<&JsonText> {
    message.content.as_ref().filter(|text| !is_blank(text))
}

fn is_blank(text: &JsonText) -> bool {
    // Fast path: a text that begins with a plain character need not be decoded.
    let is_plain = |c: char| !c.is_whitespace() && c != '\\' && c != '"';
    let first = text.as_json().chars().nth(1);
    !first.is_some_and(is_plain) && text.decode().trim().is_empty()
}

fn tool_use(call: &ToolCall) -> Block<'_> {
    Block::ToolUse {
        id: allowed_id(&call.id),
        name: &call.function.name,
        input: input_object(&call.function.arguments.decode()),
    }
}

/// Escapes characters that the API does not allow in a call ID. IDs in a history may come from another provider; the
/// escaping is deterministic, so that a call and its result still match.
fn allowed_id(id: &str) -> Cow<'_, str> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !id.is_empty() && id.bytes().all(is_allowed) {
        return Cow::Borrowed(id);
    }
    let escaped = id.bytes().map(|byte| match byte {
        byte if is_allowed(byte) => char::from(byte).to_string(),
        byte => format!("-{byte:02x}"),
    });
    Cow::Owned(std::iter::once("call_".to_owned()).chain(escaped).collect())
}
