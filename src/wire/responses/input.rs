//! Input items of a conversation, and their conversion to chat messages.

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

/// The `input` field as the caller sent it: a text, or items.
#[derive(Debug)]
pub(crate) enum Input {
    Text(JsonText),
    Items(Vec<RawItem>),
}

/// An item as the caller sent it; which fields are used depends on its type.
#[derive(Debug, Deserialize)]
pub(crate) struct RawItem {
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

/// A checked item: it has all fields that its type needs.
#[derive(Debug)]
pub(crate) struct Item {
    id: Option<String>,
    content: ItemContent,
}

/// The content of an item.
#[derive(Debug)]
enum ItemContent {
    Message(Message),
    Call(ToolCall),
    /// A reference to the earlier item with this ID.
    Reference,
    /// An item that is not sent to the model, such as reasoning.
    Ignored,
}

impl Input {
    /// Checks the items. The error names the item and the field.
    pub(crate) fn into_items(self) -> Result<Vec<Item>, GatewayError> {
        match self {
            Self::Text(text) => Ok(vec![Item {
                id: None,
                content: ItemContent::Message(Message::text(Role::User, text)),
            }]),
            Self::Items(items) => {
                let items = items.into_iter().enumerate();
                items.map(|(at, item)| item.read(at)).collect()
            }
        }
    }
}

impl Item {
    pub(crate) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    pub(crate) fn is_ignored(&self) -> bool {
        matches!(self.content, ItemContent::Ignored)
    }

    /// The ID of the item that this one refers to, if it is a reference.
    pub(crate) fn reference(&self) -> Option<&str> {
        let is_reference = matches!(self.content, ItemContent::Reference);
        self.id.as_deref().filter(|_| is_reference)
    }
}

impl RawItem {
    /// Checks the item; `at` is its index in the input.
    fn read(self, at: usize) -> Result<Item, GatewayError> {
        let needed = |field: &str, what: &str| {
            let message = format!("`input[{at}]` is not complete: {what} needs `{field}`.");
            GatewayError::invalid(format!("input[{at}].{field}"), message)
        };
        let content = match self.kind.as_deref() {
            None if self.role.is_none() && self.id.is_some() => ItemContent::Reference,
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
                ItemContent::Message(Message::text(role, with_refusals(content)))
            }
            Some(kind @ "function_call") => {
                let (call_id, name) = (self.call_id, self.name);
                let call_id = call_id.ok_or_else(|| needed("call_id", kind))?;
                let name = name.ok_or_else(|| needed("name", kind))?;
                let arguments = self.arguments.ok_or_else(|| needed("arguments", kind))?;
                ItemContent::Call(ToolCall::new(call_id, name, arguments))
            }
            Some(kind @ "function_call_output") => {
                let call_id = self.call_id.ok_or_else(|| needed("call_id", kind))?;
                let output = self.output.ok_or_else(|| needed("output", kind))?;
                ItemContent::Message(Message::tool(call_id, with_refusals(output)))
            }
            Some(kind @ "item_reference") => {
                self.id.as_ref().ok_or_else(|| needed("id", kind))?;
                ItemContent::Reference
            }
            // Reasoning is not sent back to the model.
            Some("reasoning") => ItemContent::Ignored,
            Some(other) => {
                let param = format!("input[{at}].type");
                let message = format!("`{param}` is `{other}`, which is not served here.");
                return Err(GatewayError::invalid(param, message));
            }
        };
        Ok(Item {
            id: self.id,
            content,
        })
    }
}

/// The content as one text: text parts and refusals joined with line breaks.
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

/// Appends the items, as messages, to an earlier conversation. References have been resolved before.
///
/// Adjacent texts and calls of the assistant become one message, because the outputs of its calls must follow it
/// directly.
pub(crate) fn conversation(mut messages: Vec<Message>, items: Vec<Item>) -> Vec<Message> {
    let mut late_texts = Vec::new(); // assistant texts that follow the calls of the last message
    for item in items {
        let last = messages.last_mut();
        let last = last.filter(|last| last.role == Role::Assistant);
        match (item.content, last) {
            (ItemContent::Call(call), Some(last)) => last.tool_calls.push(call),
            (ItemContent::Call(call), None) => messages.push(Message::tool_calls(None, vec![call])),
            (ItemContent::Message(message), Some(last))
                if message.role == Role::Assistant && !last.tool_calls.is_empty() =>
            {
                late_texts.extend(message.content);
            }
            (ItemContent::Message(message), last) => {
                append_texts(last, &mut late_texts);
                messages.push(message);
            }
            (ItemContent::Reference | ItemContent::Ignored, _) => {}
        }
    }
    append_texts(messages.last_mut(), &mut late_texts);
    messages
}

/// Appends the texts to a message, all at once: one by one, a long turn would be copied for each text.
fn append_texts(message: Option<&mut Message>, texts: &mut Vec<JsonText>) {
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
