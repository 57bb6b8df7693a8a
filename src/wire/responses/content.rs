//! The content of items: texts, and parts that a model of text cannot read.

use serde::Deserialize;

use crate::wire::{chat::Content, json_text::JsonText};

/// The content of an item, or the output of a tool.
pub(super) type ItemContent = Content<ItemPart>;

#[derive(Debug, Deserialize)]
pub(super) struct ItemPart {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<JsonText>,
    /// The text with which a model declined to answer.
    refusal: Option<JsonText>,
    /// Text of a message between agents. The model that wrote it did not encrypt it.
    encrypted_content: Option<JsonText>,
}

impl ItemPart {
    fn text(&self) -> Option<&JsonText> {
        let text = self.text.as_ref().or(self.refusal.as_ref());
        text.or(self.encrypted_content.as_ref())
    }

    /// A note in place of a part without text.
    fn note(&self) -> JsonText {
        let what = match self.kind.as_deref() {
            Some("input_image" | "image") => "an image",
            Some("input_file" | "file") => "a file",
            Some("input_audio" | "audio") => "a recording",
            _ => "a part",
        };
        JsonText::new(&format!(
            "[The tool returned {what} here, which this model cannot read.]"
        ))
    }
}

/// The texts of a message as one, joined with line breaks. Other parts are dropped.
pub(super) fn texts(content: ItemContent) -> JsonText {
    match content {
        Content::Text(text) => text,
        Content::Parts(parts) => JsonText::join_lines(parts.iter().filter_map(ItemPart::text)),
    }
}

/// The output of a tool as one text, with notes in place of images and the like.
///
/// An agent sends the whole history with each turn, so refusing an image would end its work.
pub(super) fn texts_and_notes(content: ItemContent) -> JsonText {
    let parts = match content {
        Content::Text(text) => return text,
        Content::Parts(parts) => parts,
    };
    let texts: Vec<_> = parts
        .iter()
        .map(|part| part.text().cloned().unwrap_or_else(|| part.note()))
        .collect();
    JsonText::join_lines(&texts)
}
