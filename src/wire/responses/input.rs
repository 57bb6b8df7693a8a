//! The items of a conversation, and the chat messages they are.

use std::fmt;

use serde::{
    Deserialize,
    de::{Deserializer, SeqAccess, Visitor},
};

use crate::wire::{
    chat::{Content, Message, Role, ToolCall},
    error::GatewayError,
    json_text::JsonText,
};

/// What is said to the model, as it was sent: a text, or items.
#[derive(Debug)]
pub enum Input {
    Text(JsonText),
    Items(Vec<Written>),
}

/// An item as it was sent; which of its fields mean something depends on its type.
#[derive(Debug, Deserialize)]
pub struct Written {
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

/// An item with all that its type needs.
#[derive(Debug)]
pub struct Item {
    id: Option<String>,
    said: Said,
}

/// What an item says.
#[derive(Debug)]
enum Said {
    Message(Message),
    Call(ToolCall),
    /// What the item of its ID says.
    Reference,
    /// Nothing that a model reads again.
    Nothing,
}

impl Input {
    /// The items, or what is wrong with one of them.
    pub fn into_items(self) -> Result<Vec<Item>, GatewayError> {
        match self {
            Self::Text(text) => Ok(vec![Item {
                id: None,
                said: Said::Message(Message::saying(Role::User, text)),
            }]),
            Self::Items(items) => {
                let items = items.into_iter().enumerate();
                items.map(|(at, item)| item.read(at)).collect()
            }
        }
    }
}

impl Item {
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    pub fn says_nothing(&self) -> bool {
        matches!(self.said, Said::Nothing)
    }

    /// The item it stands for, if it is a reference.
    pub fn refers_to(&self) -> Option<&str> {
        let is_reference = matches!(self.said, Said::Reference);
        self.id.as_deref().filter(|_| is_reference)
    }
}

impl Written {
    /// `at` is its place in the input.
    fn read(self, at: usize) -> Result<Item, GatewayError> {
        let needed = |field: &str, what: &str| {
            let message = format!("`input[{at}]` is not complete: {what} needs `{field}`.");
            GatewayError::invalid(format!("input[{at}].{field}"), message)
        };
        let said = match self.kind.as_deref() {
            None if self.role.is_none() && self.id.is_some() => Said::Reference,
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
                Said::Message(Message::saying(role, with_refusals(content)))
            }
            Some(kind @ "function_call") => {
                let (call_id, name) = (self.call_id, self.name);
                let call_id = call_id.ok_or_else(|| needed("call_id", kind))?;
                let name = name.ok_or_else(|| needed("name", kind))?;
                let arguments = self.arguments.ok_or_else(|| needed("arguments", kind))?;
                Said::Call(ToolCall::new(call_id, name, arguments))
            }
            Some(kind @ "function_call_output") => {
                let call_id = self.call_id.ok_or_else(|| needed("call_id", kind))?;
                let output = self.output.ok_or_else(|| needed("output", kind))?;
                Said::Message(Message::tool(call_id, with_refusals(output)))
            }
            Some(kind @ "item_reference") => {
                self.id.as_ref().ok_or_else(|| needed("id", kind))?;
                Said::Reference
            }
            // What a model thought is its own; it is not sent back to it here.
            Some("reasoning") => Said::Nothing,
            Some(other) => {
                let param = format!("input[{at}].type");
                let message = format!("`{param}` is `{other}`, which is not served here.");
                return Err(GatewayError::invalid(param, message));
            }
        };
        Ok(Item { id: self.id, said })
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

/// The items as the messages they are, after those of an earlier conversation; references have
/// been put in their places.
///
/// What an assistant says and what it calls, one directly after the other, is one message: the
/// outputs of its calls must follow it.
pub fn conversation(mut messages: Vec<Message>, items: Vec<Item>) -> Vec<Message> {
    let mut said_late = Vec::new(); // in the last message's turn, after its calls
    for item in items {
        let last = messages.last_mut();
        let last = last.filter(|last| last.role == Role::Assistant);
        match (item.said, last) {
            (Said::Call(call), Some(last)) => last.tool_calls.push(call),
            (Said::Call(call), None) => messages.push(Message::calling(None, vec![call])),
            (Said::Message(message), Some(last))
                if message.role == Role::Assistant && !last.tool_calls.is_empty() =>
            {
                said_late.extend(message.content);
            }
            (Said::Message(message), last) => {
                say_late(last, &mut said_late);
                messages.push(message);
            }
            (Said::Reference | Said::Nothing, _) => {}
        }
    }
    say_late(messages.last_mut(), &mut said_late);
    messages
}

/// All at once, or a long turn would be copied again for each line of it.
fn say_late(message: Option<&mut Message>, texts: &mut Vec<JsonText>) {
    if let Some(message) = message.filter(|_| !texts.is_empty()) {
        message.content = Some(JsonText::join_lines(message.content.iter().chain(&*texts)));
        texts.clear();
    }
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
