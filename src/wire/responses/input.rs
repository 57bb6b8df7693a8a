//! The items of a conversation, and the chat messages they are.

use std::fmt;

use serde::{
    Deserialize,
    de::{Deserializer, SeqAccess, Visitor},
};

use crate::{
    error::GatewayError,
    wire::{
        chat::{Content, Message, Role, ToolCall},
        json_text::JsonText,
    },
};

/// What is said to the model: a text, or items.
#[derive(Debug)]
pub enum Input {
    Text(JsonText),
    Items(Vec<Item>),
}

/// An item as it was sent; which of its fields mean something depends on its type.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Item {
    #[serde(rename = "type")]
    kind: Option<String>,
    id: Option<String>,
    role: Option<String>,
    content: Option<Content>,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<JsonText>,
    output: Option<Content>,
}

/// What an item says.
enum Said {
    Message(Message),
    Call(ToolCall),
    /// Nothing that a model reads again.
    Nothing,
}

impl Item {
    pub fn user(text: JsonText) -> Self {
        Self {
            role: Some("user".into()),
            content: Some(Content::Text(text)),
            ..Self::default()
        }
    }

    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// About how long it is.
    pub fn text_bytes(&self) -> usize {
        let length = |text: &JsonText| text.as_json().len();
        let arguments = self.arguments.as_ref().map_or(0, length);
        let parts = match &self.content {
            None => 0,
            Some(Content::Text(text)) => length(text),
            Some(Content::Parts(parts)) => parts
                .iter()
                .filter_map(|part| part.text.as_ref())
                .map(length)
                .sum(),
        };
        // What every item has, however little it says.
        64 + arguments + parts
    }

    /// The item it stands for, if it is a reference.
    pub fn refers_to(&self) -> Option<&str> {
        let bare = self.kind.is_none() && self.role.is_none();
        let is_reference = bare || self.kind.as_deref() == Some("item_reference");
        self.id.as_deref().filter(|_| is_reference)
    }

    /// `at` is its place in the input.
    fn said(self, at: usize) -> Result<Said, GatewayError> {
        let kind = self.kind.as_deref();
        let needed = |field: &str, what: &str| {
            let message = format!("`input[{at}]` is not complete: {what} needs `{field}`.");
            GatewayError::invalid(format!("input[{at}].{field}"), message)
        };
        match kind {
            None | Some("message") => {
                let role = self.role.as_deref();
                let role = role.ok_or_else(|| needed("role", "a message"))?;
                let role = match role {
                    "user" => Role::User,
                    "assistant" => Role::Assistant,
                    "system" | "developer" => Role::System,
                    other => {
                        let param = format!("input[{at}].role");
                        let message = format!(
                            "`{param}` is `{other}`; it must be `user`, `assistant`, `system` or \
                             `developer`."
                        );
                        return Err(GatewayError::invalid(param, message));
                    }
                };
                let content = self.content.ok_or_else(|| needed("content", "a message"))?;
                Ok(Said::Message(Message::saying(role, with_refusals(content))))
            }
            Some(kind @ "function_call") => {
                let (call_id, name) = (self.call_id, self.name);
                let call_id = call_id.ok_or_else(|| needed("call_id", kind))?;
                let name = name.ok_or_else(|| needed("name", kind))?;
                let arguments = self.arguments.ok_or_else(|| needed("arguments", kind))?;
                Ok(Said::Call(ToolCall::new(call_id, name, arguments)))
            }
            Some(kind @ "function_call_output") => {
                let call_id = self.call_id.ok_or_else(|| needed("call_id", kind))?;
                let output = self.output.ok_or_else(|| needed("output", kind))?;
                let message = Message::tool(call_id, with_refusals(output));
                Ok(Said::Message(message))
            }
            // What a model thought is its own; it is not sent back to it here.
            Some("reasoning") => Ok(Said::Nothing),
            Some(other) => {
                let param = format!("input[{at}].type");
                let message = format!("`{param}` is `{other}`, which is not served here.");
                Err(GatewayError::invalid(param, message))
            }
        }
    }
}

/// Text parts a line each, a refusal for the text it is.
fn with_refusals(content: Content) -> JsonText {
    match content {
        Content::Text(text) => text,
        Content::Parts(parts) => {
            let texts = parts.iter();
            JsonText::join_lines(
                texts.filter_map(|part| part.text.as_ref().or(part.refusal.as_ref())),
            )
        }
    }
}

/// The items as the messages they are, after those of an earlier conversation. Calls of functions
/// belong to the assistant's message before them.
pub fn conversation(
    mut messages: Vec<Message>,
    items: impl IntoIterator<Item = Item>,
) -> Result<Vec<Message>, GatewayError> {
    for (at, item) in items.into_iter().enumerate() {
        match item.said(at)? {
            Said::Message(message) => messages.push(message),
            Said::Call(call) => match messages.last_mut() {
                Some(last) if last.role == Role::Assistant => last.tool_calls.push(call),
                _ => messages.push(Message::calling(None, vec![call])),
            },
            Said::Nothing => {}
        }
    }
    Ok(messages)
}

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrItems;

        impl<'de> Visitor<'de> for TextOrItems {
            type Value = Input;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an array of items")
            }

            fn visit_str<E>(self, text: &str) -> Result<Input, E> {
                Ok(Input::Text(JsonText::new(text)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Input, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element()? {
                    all.push(item);
                }
                Ok(Input::Items(all))
            }
        }

        deserializer.deserialize_any(TextOrItems)
    }
}
