//! Input items of a conversation.

use std::fmt;

use serde::{
    Deserialize,
    de::{Deserializer, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    content::{ItemContent, texts, texts_and_notes},
    custom_input,
    tool_names::{CallerTool, ToolKind},
    tools::RawTool,
};
use crate::wire::{
    chat::{Content, Message, Role},
    error::GatewayError,
    json_text::{JsonText, LONE_SURROGATE},
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
    content: Option<ItemContent>,
    call_id: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    /// A string; items of types that are not served have other forms of it.
    arguments: Option<Box<RawValue>>,
    input: Option<JsonText>,
    /// A string or parts; items of types that are not served have other forms of it.
    output: Option<Box<RawValue>>,
    tools: Option<Vec<RawTool>>,
}

/// A checked item: it has all fields that its type needs.
#[derive(Debug)]
pub(crate) struct Item {
    id: Option<String>,
    pub(super) kind: ItemKind,
}

#[derive(Debug)]
pub(super) enum ItemKind {
    Message(Message),
    Call(Call),
    /// An output of a call. A call may have several.
    Output {
        call_id: String,
        text: JsonText,
    },
    /// A reference to the earlier item with this ID.
    Reference,
    /// Tools that are offered from here on.
    Tools(Vec<RawTool>),
    /// An item that is not sent to the model, such as reasoning.
    Ignored,
}

/// A call of a tool, with the arguments that the provider gets.
#[derive(Debug)]
pub(super) struct Call {
    pub id: String,
    pub tool: CallerTool,
    pub arguments: JsonText,
}

impl Input {
    /// Checks the items. The error names the item and the field.
    pub(crate) fn into_items(self) -> Result<Vec<Item>, GatewayError> {
        match self {
            Self::Text(text) => Ok(vec![Item {
                id: None,
                kind: ItemKind::Message(Message::text(Role::User, text)),
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

    /// Whether the model is sent nothing of it.
    pub(crate) fn is_ignored(&self) -> bool {
        matches!(self.kind, ItemKind::Ignored | ItemKind::Tools(_))
    }

    /// The ID of the item that this one refers to, if it is a reference.
    pub(crate) fn reference(&self) -> Option<&str> {
        let is_reference = matches!(self.kind, ItemKind::Reference);
        self.id.as_deref().filter(|_| is_reference)
    }

    /// Takes the tools out of an item that offers some.
    pub(super) fn take_tools(&mut self) -> Option<Vec<RawTool>> {
        match &mut self.kind {
            ItemKind::Tools(tools) => Some(std::mem::take(tools)),
            _ => None,
        }
    }
}

impl RawItem {
    /// Checks the item; `at` is its index in the input.
    fn read(mut self, at: usize) -> Result<Item, GatewayError> {
        let id = self.id.take();
        let kind = self.kind.take();
        let kind = match kind.as_deref() {
            None if self.role.is_none() && id.is_some() => ItemKind::Reference,
            None | Some("message") => ItemKind::Message(self.into_message(at)?),
            Some("agent_message") => {
                let content = needed(self.content, at, "content", "an agent's message")?;
                ItemKind::Message(Message::text(Role::User, texts(content)))
            }
            Some(kind @ ("function_call" | "custom_tool_call")) => {
                ItemKind::Call(self.into_call(at, kind)?)
            }
            Some(kind @ ("function_call_output" | "custom_tool_call_output")) => {
                let call_id = needed(self.call_id, at, "call_id", kind)?;
                let output = needed(self.output, at, "output", kind)?;
                let text = texts_and_notes(read_output(output, at)?);
                ItemKind::Output { call_id, text }
            }
            Some(kind @ "item_reference") => {
                needed(id.as_ref(), at, "id", kind)?;
                ItemKind::Reference
            }
            Some(kind @ "additional_tools") => {
                ItemKind::Tools(needed(self.tools, at, "tools", kind)?)
            }
            // Neither means anything to the model: it cannot read the one, and did not make the other.
            Some("reasoning" | "web_search_call") => ItemKind::Ignored,
            Some(other) => return Err(not_served(at, other)),
        };
        Ok(Item { id, kind })
    }

    fn into_message(self, at: usize) -> Result<Message, GatewayError> {
        let role = needed(self.role, at, "role", "a message")?;
        let role = match role.as_str() {
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
        let content = needed(self.content, at, "content", "a message")?;
        Ok(Message::text(role, texts(content)))
    }

    fn into_call(self, at: usize, kind: &str) -> Result<Call, GatewayError> {
        let id = needed(self.call_id, at, "call_id", kind)?;
        let name = needed(self.name, at, "name", kind)?;
        let is_custom = kind == "custom_tool_call";
        let arguments = if is_custom {
            custom_input::arguments(&needed(self.input, at, "input", kind)?)
        } else {
            let arguments = needed(self.arguments, at, "arguments", kind)?;
            let is_string = arguments.get().starts_with('"');
            JsonText::from_boxed(arguments).ok_or_else(|| {
                let param = format!("input[{at}].arguments");
                let reason = if is_string {
                    LONE_SURROGATE
                } else {
                    "expected a string"
                };
                GatewayError::invalid(&*param, format!("`{param}` is not right: {reason}."))
            })?
        };
        let tool = CallerTool {
            kind: if is_custom {
                ToolKind::Custom
            } else {
                ToolKind::Function
            },
            namespace: self.namespace.filter(|namespace| !namespace.is_empty()),
            name,
        };
        Ok(Call {
            id,
            tool,
            arguments,
        })
    }
}

/// The value of a field that the item needs.
fn needed<T>(value: Option<T>, at: usize, field: &str, what: &str) -> Result<T, GatewayError> {
    value.ok_or_else(|| {
        let message = format!("`input[{at}]` is not complete: {what} needs `{field}`.");
        GatewayError::invalid(format!("input[{at}].{field}"), message)
    })
}

/// Reads the output of a tool. A string is not copied.
fn read_output(output: Box<RawValue>, at: usize) -> Result<ItemContent, GatewayError> {
    let read = if output.get().starts_with('"') {
        let text = JsonText::from_boxed(output).map(Content::Text);
        text.ok_or_else(|| LONE_SURROGATE.to_owned())
    } else {
        serde_json::from_str(output.get()).map_err(|error| error.to_string())
    };
    read.map_err(|reason| {
        let param = format!("input[{at}].output");
        let reason = reason.split(" at line ").next().unwrap_or_default();
        GatewayError::invalid(&*param, format!("`{param}` is not right: {reason}."))
    })
}

fn not_served(at: usize, kind: &str) -> GatewayError {
    let param = format!("input[{at}].type");
    let message = if kind.starts_with("compaction") || kind == "context_compaction" {
        format!(
            "Send a summary as a message in place of `input[{at}]`: items of type `{kind}` are not served here."
        )
    } else {
        format!("Leave `input[{at}]` out: items of type `{kind}` are not served here.")
    };
    GatewayError::invalid(param, message)
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
