//! Content blocks: what each kind becomes in a chat message.

use std::fmt;

use serde::Deserialize;

use super::{
    documents,
    fields::{Citations, Content, Source},
    ids,
    native::Extras,
};
use crate::wire::{
    chat::{Schema, ToolCall},
    error::GatewayError,
    json_text::JsonText,
};

/// Most tokens of an image, whatever its size.
pub(super) const IMAGE_TOKENS: u64 = 5_000;
/// Bytes of a text that make about one token.
const BYTES_PER_TOKEN: u64 = 3;

/// Text before the content of a result that reports a failure.
const TOOL_FAILED: &str = "The tool failed:";

/// A block as the caller sent it; which fields are used depends on its type. Others, such as `cache_control`, have no
/// effect.
#[derive(Debug, Deserialize)]
pub(super) struct RawBlock {
    #[serde(rename = "type")]
    pub kind: String,
    pub text: Option<JsonText>,
    pub citations: Option<Citations>,
    pub id: Option<String>,
    pub name: Option<String>,
    pub input: Option<Schema>,
    pub tool_use_id: Option<String>,
    pub content: Option<Content>,
    pub is_error: Option<bool>,
    pub tool_name: Option<String>,
    pub source: Option<Source>,
    pub title: Option<JsonText>,
    pub context: Option<JsonText>,
    pub thinking: Option<JsonText>,
    pub signature: Option<JsonText>,
    pub data: Option<JsonText>,
}

/// What a block is in a chat.
#[derive(Debug)]
pub(super) enum Piece {
    Text(JsonText),
    Call {
        /// The ID as the caller wrote it, for errors.
        id: String,
        call: ToolCall,
    },
    Result {
        /// The ID as the caller wrote it.
        id: String,
        content: JsonText,
    },
    /// Thinking, which no other model can read.
    Nothing,
}

/// Where a block is, for errors: `messages.3.content.1`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    System {
        block: usize,
    },
    Message {
        message: usize,
        block: usize,
    },
    Result {
        message: usize,
        block: usize,
        inner: usize,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { block } => write!(f, "system.{block}"),
            Self::Message { message, block } => write!(f, "messages.{message}.content.{block}"),
            Self::Result {
                message,
                block,
                inner,
            } => write!(
                f,
                "messages.{message}.content.{block}.tool_result.content.{inner}"
            ),
        }
    }
}

/// The error for a field at `path`, in the form of this API: the message begins with the path.
pub(super) fn wrong(path: impl fmt::Display, reason: impl fmt::Display) -> GatewayError {
    let message = format!("{path}: {reason}");
    GatewayError::invalid(path.to_string(), message)
}

pub(super) fn missing(place: Place, field: &str) -> GatewayError {
    wrong(format!("{place}.{field}"), "it is missing.")
}

/// What the blocks say beside their texts.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Names of tools that `tool_reference` blocks load.
    pub loaded: Vec<String>,
    /// Whether a provider of this API can get the request as it is.
    pub takes_native: bool,
    pub extras: Extras,
}

impl Notes {
    /// Refuses what a chat cannot have, unless a provider of this API gets it as it is: then it has about so many tokens.
    pub(super) fn native_only(
        &mut self,
        tokens: u64,
        refusal: impl FnOnce() -> GatewayError,
    ) -> Result<(), GatewayError> {
        if !self.takes_native {
            return Err(refusal());
        }
        self.extras.needs_native = true;
        self.extras.tokens += tokens;
        Ok(())
    }

    /// Notes a text of so many bytes that only a provider of this API gets, such as thinking, which only the provider
    /// that signed it can read. Without such a provider it has no effect.
    pub(super) fn note_native(&mut self, bytes: usize) {
        if self.takes_native {
            self.extras.needs_native = true;
            self.extras.tokens += bytes as u64 / BYTES_PER_TOKEN;
        }
    }
}

impl RawBlock {
    /// Reads a block of a message of the user or the assistant.
    pub(super) fn read(self, place: Place, notes: &mut Notes) -> Result<Piece, GatewayError> {
        match self.kind.as_str() {
            "tool_use" => self.tool_use(place),
            "tool_result" => self.tool_result(place, notes),
            // Nothing is lost: only the provider that signed it can read it.
            "thinking" => {
                let thinking = self.thinking.ok_or_else(|| missing(place, "thinking"))?;
                self.signature.ok_or_else(|| missing(place, "signature"))?;
                notes.note_native(thinking.as_json().len());
                Ok(Piece::Nothing)
            }
            "redacted_thinking" => {
                let data = self.data.ok_or_else(|| missing(place, "data"))?;
                notes.note_native(data.as_json().len());
                Ok(Piece::Nothing)
            }
            _ => self.text(place, notes).map(Piece::Text),
        }
    }

    /// Reads a block that has a text, which is all that system prompts and tool results may hold.
    pub(super) fn text(self, place: Place, notes: &mut Notes) -> Result<JsonText, GatewayError> {
        match self.kind.as_str() {
            "text" => {
                if self.citations.is_some_and(|citations| citations.is_used) {
                    notes.native_only(0, || {
                        let path = format!("{place}.citations");
                        wrong(path, "citations are not supported by this model.")
                    })?;
                }
                self.text.ok_or_else(|| missing(place, "text"))
            }
            "document" => documents::document(self, place, notes),
            "search_result" => documents::search_result(self, place, notes),
            // Clients find the block by this path, replace it by a note and go on.
            "image" => {
                notes.native_only(IMAGE_TOKENS, || {
                    let path = format!("{place}.image");
                    wrong(path, "this model reads text only; remove the image.")
                })?;
                notes.extras.is_unbounded = true;
                Ok(JsonText::new(""))
            }
            "tool_reference" => {
                let name = self.tool_name.ok_or_else(|| missing(place, "tool_name"))?;
                let text = JsonText::new(&format!("The tool `{name}` is available now."));
                notes.loaded.push(name);
                Ok(text)
            }
            other => Err(wrong(
                format!("{place}.type"),
                format!("blocks of type `{other}` are not supported here."),
            )),
        }
    }

    fn tool_use(self, place: Place) -> Result<Piece, GatewayError> {
        let id = self.id.ok_or_else(|| missing(place, "id"))?;
        check_id(&id, place, "id")?;
        let name = self.name.ok_or_else(|| missing(place, "name"))?;
        let input = self.input.ok_or_else(|| missing(place, "input"))?;
        let arguments = JsonText::new(input.as_json());
        let call = ToolCall::new(ids::inner(&id), name, arguments);
        Ok(Piece::Call { id, call })
    }

    fn tool_result(self, place: Place, notes: &mut Notes) -> Result<Piece, GatewayError> {
        let id = self.tool_use_id;
        let id = id.ok_or_else(|| missing(place, "tool_use_id"))?;
        check_id(&id, place, "tool_use_id")?;
        let content = match self.content {
            None => JsonText::new(""),
            Some(Content::Text(text)) => text,
            Some(Content::Blocks(blocks)) => {
                let within = |inner| match place {
                    Place::Message { message, block } => Place::Result {
                        message,
                        block,
                        inner,
                    },
                    other => other,
                };
                let blocks = blocks.into_iter().enumerate();
                let texts = blocks.map(|(inner, block)| block.text(within(inner), notes));
                let texts: Vec<_> = texts.collect::<Result<_, _>>()?;
                joined(texts)
            }
        };
        let content = if self.is_error.unwrap_or(false) {
            JsonText::join_lines([&JsonText::new(TOOL_FAILED), &content])
        } else {
            content
        };
        Ok(Piece::Result { id, content })
    }
}

fn check_id(id: &str, place: Place, field: &str) -> Result<(), GatewayError> {
    if ids::is_allowed(id) {
        return Ok(());
    }
    let path = format!("{place}.{field}");
    Err(wrong(
        path,
        "an ID has letters, digits, `_` and `-` only, and one of them at least.",
    ))
}

/// One text of several, a line each.
pub(super) fn joined(mut texts: Vec<JsonText>) -> JsonText {
    match texts.len() {
        1 => texts.remove(0),
        _ => JsonText::join_lines(&texts),
    }
}
