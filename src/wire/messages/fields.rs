//! Fields that clients write in several forms.

use std::fmt;

use serde::{
    Deserialize,
    de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

use super::blocks::RawBlock;
use crate::wire::json_text::JsonText;

/// The content of a message, a tool result or the system prompt: a text, or blocks.
#[derive(Debug)]
pub(super) enum Content {
    Text(JsonText),
    Blocks(Vec<RawBlock>),
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrBlocks;

        impl<'de> Visitor<'de> for TextOrBlocks {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an array of blocks")
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(JsonText::new(text)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut blocks: A) -> Result<Content, A::Error> {
                let mut all = Vec::new();
                while let Some(block) = blocks.next_element()? {
                    all.push(block);
                }
                Ok(Content::Blocks(all))
            }
        }

        deserializer.deserialize_any(TextOrBlocks)
    }
}

/// The `source` of a block: an object for images and documents, a text for search results.
#[derive(Debug)]
pub(super) enum Source {
    Text(JsonText),
    Object(SourceObject),
}

#[derive(Debug, Deserialize)]
pub(super) struct SourceObject {
    #[serde(rename = "type")]
    pub kind: String,
    pub data: Option<JsonText>,
    pub content: Option<Content>,
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrObject;

        impl<'de> Visitor<'de> for TextOrObject {
            type Value = Source;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with `type`, or a string")
            }

            fn visit_str<E>(self, text: &str) -> Result<Source, E> {
                Ok(Source::Text(JsonText::new(text)))
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Source, M::Error> {
                let object = MapAccessDeserializer::new(map);
                SourceObject::deserialize(object).map(Source::Object)
            }
        }

        deserializer.deserialize_any(TextOrObject)
    }
}

/// The `citations` of a block: whether a document is to be cited, or where a text cites one.
#[derive(Debug)]
pub(super) struct Citations {
    pub is_used: bool,
}

impl<'de> Deserialize<'de> for Citations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Switch {
            enabled: Option<bool>,
        }

        struct ListOrSwitch;

        impl<'de> Visitor<'de> for ListOrSwitch {
            type Value = Citations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of citations, or an object with `enabled`")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Citations, A::Error> {
                let mut is_used = false;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    is_used = true;
                }
                Ok(Citations { is_used })
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Citations, M::Error> {
                let switch = Switch::deserialize(MapAccessDeserializer::new(map))?;
                let is_used = switch.enabled.unwrap_or(false);
                Ok(Citations { is_used })
            }
        }

        deserializer.deserialize_any(ListOrSwitch)
    }
}
