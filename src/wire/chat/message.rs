//! One message of a conversation (§2.2, §2.3).

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;

use super::ToolCall;
use crate::{
    base::tokens::TokenCount,
    wire::{
        json_text::{JsonText, LONE_SURROGATE},
        json_writer::JsonWriter,
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    #[serde(alias = "developer")]
    System,
    User,
    Assistant,
    Tool,
}

impl Role {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// A message whose content is one string: content parts are joined when it is parsed.
///
/// Other keys (`refusal`, `annotations`, …) are ignored; every response that a client sends back has them.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub role: Role,
    pub content: Option<JsonText>,
    pub tool_calls: Vec<ToolCall>,
    pub tool_call_id: Option<String>,
    pub name: Option<JsonText>,
}

impl Message {
    pub(crate) fn text(role: Role, content: JsonText) -> Self {
        let (tool_calls, tool_call_id, name) = (Vec::new(), None, None);
        Self {
            role,
            content: Some(content),
            tool_calls,
            tool_call_id,
            name,
        }
    }

    /// An assistant message with tool calls.
    pub(crate) fn tool_calls(content: Option<JsonText>, tool_calls: Vec<ToolCall>) -> Self {
        let (tool_call_id, name) = (None, None);
        Self {
            role: Role::Assistant,
            content,
            tool_calls,
            tool_call_id,
            name,
        }
    }

    /// A tool message: the output of a call.
    pub(crate) fn tool(tool_call_id: String, content: JsonText) -> Self {
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
            // Only tool messages have it (§2.2); some providers refuse it on others.
            tool_call_id: written.tool_call_id.filter(|_| written.role == Role::Tool),
            name: written.name,
        })
    }
}

impl Message {
    /// Counts every text of the message that is sent to a provider.
    pub(crate) fn count(&self, count: &mut TokenCount) {
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

    /// Approximate length of the written message, for allocating the buffer.
    pub(crate) fn estimated_bytes(&self) -> usize {
        let content = self.content.as_ref().map_or(0, |text| text.as_json().len());
        content + 64
    }

    /// A conversation as the JSON in which it is stored.
    pub(crate) fn write_all(messages: &[Self]) -> String {
        let bytes = messages.iter().map(Self::estimated_bytes).sum();
        let mut json = JsonWriter::with_capacity(bytes);
        json.list(messages, Self::write);
        json.into_string()
    }

    /// Writes the message in the format of OpenAI's API.
    pub(crate) fn write(&self, json: &mut JsonWriter) {
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

    /// The field that a message of this role must have or must not have, with an explanation; `None` if it is valid.
    pub(crate) fn wrong_field(&self) -> Option<(&'static str, &'static str)> {
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

/// A message's content: a string, or parts of which only the texts are used.
#[derive(Clone, Debug)]
pub(crate) enum Content<P = ContentPart> {
    Text(JsonText),
    Parts(Vec<P>),
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ContentPart {
    text: Option<JsonText>,
}

impl Content {
    /// The content as one text: the text parts joined with line breaks. Other parts are dropped.
    pub(crate) fn flattened(self) -> JsonText {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => {
                JsonText::join_lines(parts.iter().filter_map(|part| part.text.as_ref()))
            }
        }
    }
}

impl<'de, P: DeserializeOwned> Deserialize<'de> for Content<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Borrowed: of parts only the joined text is kept.
        let raw = <&RawValue>::deserialize(deserializer)?;
        match raw.get().as_bytes().first() {
            Some(b'"') => JsonText::from_raw(raw)
                .map(Self::Text)
                .ok_or_else(|| D::Error::custom(LONE_SURROGATE)),
            Some(b'[') => serde_json::from_str(raw.get())
                .map(Self::Parts)
                .map_err(|error| {
                    let is_surrogate = error.to_string().contains(LONE_SURROGATE);
                    let not_parts = "expected content parts: objects, whose `text` is a string";
                    D::Error::custom(if is_surrogate {
                        LONE_SURROGATE
                    } else {
                        not_parts
                    })
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
    fn text_parts_are_joined_and_images_dropped() {
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
