//! One message of a conversation (SPEC §2.2, §2.3).

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::value::RawValue;

use super::ToolCall;
use crate::{
    base::tokens::TokenCount,
    wire::{
        json_text::{HALF_A_PAIR, JsonText},
        json_writer::JsonWriter,
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    #[serde(alias = "developer")]
    System,
    User,
    Assistant,
    Tool,
}

impl Role {
    fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// A message whose content is already one string: parts are joined as they are read.
///
/// Keys that a message of ours does not have (`refusal`, `annotations`, …) come with every answer
/// that a client sends back, and are passed over.
#[derive(Clone, Debug)]
pub struct Message {
    pub role: Role,
    pub content: Option<JsonText>,
    pub tool_calls: Vec<ToolCall>,
    pub tool_call_id: Option<String>,
    pub name: Option<JsonText>,
}

impl Message {
    pub fn saying(role: Role, content: JsonText) -> Self {
        let (tool_calls, tool_call_id, name) = (Vec::new(), None, None);
        Self {
            role,
            content: Some(content),
            tool_calls,
            tool_call_id,
            name,
        }
    }

    /// An assistant's that calls tools.
    pub fn calling(content: Option<JsonText>, tool_calls: Vec<ToolCall>) -> Self {
        let (tool_call_id, name) = (None, None);
        Self {
            role: Role::Assistant,
            content,
            tool_calls,
            tool_call_id,
            name,
        }
    }

    /// What a tool answered to a call.
    pub fn tool(tool_call_id: String, content: JsonText) -> Self {
        let (tool_calls, name) = (Vec::new(), None);
        Self {
            role: Role::Tool,
            content: Some(content),
            tool_calls,
            tool_call_id: Some(tool_call_id),
            name,
        }
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Written {
            role: Role,
            content: Option<Content>,
            tool_calls: Option<Vec<ToolCall>>,
            tool_call_id: Option<String>,
            name: Option<JsonText>,
        }
        let written = Written::deserialize(deserializer)?;
        Ok(Self {
            role: written.role,
            content: written.content.map(Content::flattened),
            tool_calls: written.tool_calls.unwrap_or_default(),
            // Of tool messages only (§2.2); on another one some providers refuse it.
            tool_call_id: written.tool_call_id.filter(|_| written.role == Role::Tool),
            name: written.name,
        })
    }
}

impl Message {
    /// Every text of it that a provider is sent.
    pub fn count(&self, count: &mut TokenCount) {
        let Self {
            role: _,
            content,
            tool_calls,
            tool_call_id,
            name,
        } = self;
        count.message();
        if let Some(content) = content {
            count.text(&content.text());
        }
        for call in tool_calls {
            call.count(count);
        }
        if let Some(id) = tool_call_id {
            count.text(id);
        }
        if let Some(name) = name {
            count.text(&name.text());
        }
    }

    /// About how long it is when it is written.
    pub fn about_bytes(&self) -> usize {
        let content = self.content.as_ref().map_or(0, |text| text.as_json().len());
        content + 64
    }

    /// A conversation, as it is stored.
    pub fn write_all(messages: &[Self]) -> String {
        let bytes = messages.iter().map(Self::about_bytes).sum();
        let mut json = JsonWriter::with_capacity(bytes);
        json.list(messages, Self::write);
        json.into_string()
    }

    /// As providers take it that speak as we do.
    pub fn write(&self, json: &mut JsonWriter) {
        let content = self.content.as_ref().map_or("null", JsonText::as_json);
        json.raw("{\"role\":\"").raw(self.role.as_str());
        json.raw("\",\"content\":").raw(content);
        if !self.tool_calls.is_empty() {
            json.raw(",\"tool_calls\":").value(&self.tool_calls);
        }
        if let Some(id) = &self.tool_call_id {
            json.raw(",\"tool_call_id\":").string(id);
        }
        if let Some(name) = &self.name {
            json.raw(",\"name\":").raw(name.as_json());
        }
        json.raw("}");
    }

    /// The field that a message of this role needs and lacks, and what is said about it.
    pub fn lacks(&self) -> Option<(&'static str, &'static str)> {
        let has_content = self.content.is_some();
        match self.role {
            Role::System if !has_content => Some(("content", "a system message needs `content`")),
            Role::User if !has_content => Some(("content", "a user message needs `content`")),
            Role::Assistant if !has_content && self.tool_calls.is_empty() => Some((
                "content",
                "an assistant message needs `content` or `tool_calls`",
            )),
            Role::Tool if !has_content => Some(("content", "a tool message needs `content`")),
            Role::Tool if self.tool_call_id.is_none() => Some((
                "tool_call_id",
                "a tool message needs `tool_call_id`, the id of the call it answers",
            )),
            Role::System | Role::User | Role::Tool if !self.tool_calls.is_empty() => {
                Some(("tool_calls", "only assistant messages have `tool_calls`"))
            }
            _ => None,
        }
    }
}

/// A string, or parts of which only the text counts.
#[derive(Clone, Debug)]
pub enum Content {
    Text(JsonText),
    Parts(Vec<ContentPart>),
}

#[derive(Clone, Debug, Deserialize)]
pub struct ContentPart {
    pub text: Option<JsonText>,
    /// What a model said in place of an answer.
    pub refusal: Option<JsonText>,
}

impl Content {
    /// As one text: the parts in order, a line each; anything but text is nothing.
    pub fn flattened(self) -> JsonText {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => {
                JsonText::join_lines(parts.iter().filter_map(|part| part.text.as_ref()))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match raw.get().as_bytes().first() {
            Some(b'"') => JsonText::from_boxed(raw)
                .map(Self::Text)
                .ok_or_else(|| D::Error::custom(HALF_A_PAIR)),
            Some(b'[') => serde_json::from_str(raw.get())
                .map(Self::Parts)
                .map_err(|error| {
                    let is_half = error.to_string().contains(HALF_A_PAIR);
                    let parts = "expected content parts: objects, whose `text` is a string";
                    D::Error::custom(if is_half { HALF_A_PAIR } else { parts })
                }),
            _ => Err(D::Error::custom(
                "expected a string or an array of content parts",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(json: &str) -> Result<Option<String>, String> {
        let message = format!(r#"{{"role":"user","content":{json}}}"#);
        let message: Message = serde_json::from_str(&message).map_err(|error| error.to_string())?;
        Ok(message.content.map(|content| content.decode()))
    }

    #[test]
    fn parts_become_one_text_and_images_vanish() {
        for (written, read) in [
            (r#""plain""#, "plain"),
            (
                r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#,
                "a\nb",
            ),
            (
                r#"[{"type":"image_url","image_url":{"url":"x"}},{"type":"text","text":"b"}]"#,
                "b",
            ),
            (r#"[{"type":"text"},{"type":"text","text":"b"}]"#, "b"),
            ("[]", ""),
        ] {
            assert_eq!(content(written).unwrap().unwrap(), read, "{written}");
        }
        for refused in ["5", "{}", "[5]", r#"[{"text":5}]"#] {
            assert!(content(refused).is_err(), "{refused}");
        }
    }
}
