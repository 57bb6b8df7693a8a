//! Documents and search results, as far as they are text.

use super::{
    blocks::{IMAGE_TOKENS, Notes, Place, RawBlock, joined, missing, wrong},
    fields::{Content, Source},
};
use crate::wire::{error::GatewayError, json_text::JsonText};

/// Bytes of an encoded PDF that make about one token: a page is read as its text and as an image.
const BYTES_PER_TOKEN: u64 = 16;
/// Estimated tokens of a document that is not in the request.
const REMOTE_TOKENS: u64 = 50_000;

/// A document as text: title, context and content. A PDF, or a document elsewhere, is refused.
pub(super) fn document(
    block: RawBlock,
    place: Place,
    notes: &mut Notes,
) -> Result<JsonText, GatewayError> {
    refuse_citations(&block, place, notes)?;
    let Some(Source::Object(source)) = block.source else {
        return Err(missing(place, "source"));
    };
    let content = match (source.kind.as_str(), source.data, source.content) {
        ("text", Some(text), _) => text,
        ("text", None, _) => return Err(missing(place, "source.data")),
        ("content", _, Some(content)) => text_of(content, place, notes)?,
        ("content", _, None) => return Err(missing(place, "source.content")),
        (_, data, _) => {
            let bytes = data.map(|data| data.as_json().len() as u64);
            let tokens = bytes.map_or(REMOTE_TOKENS, |bytes| bytes / BYTES_PER_TOKEN);
            notes.native_only(tokens, || {
                let path = format!("{place}.document");
                wrong(
                    path,
                    "this model reads text only; send the document as text.",
                )
            })?;
            notes.extras.is_unbounded = true;
            JsonText::new("")
        }
    };
    let texts = [block.title, block.context, Some(content)];
    Ok(joined(texts.into_iter().flatten().collect()))
}

/// A search result as text: title, source and content.
pub(super) fn search_result(
    block: RawBlock,
    place: Place,
    notes: &mut Notes,
) -> Result<JsonText, GatewayError> {
    refuse_citations(&block, place, notes)?;
    let source = match block.source {
        Some(Source::Text(source)) => source,
        Some(Source::Object(_)) => {
            return Err(wrong(format!("{place}.source"), "it must be a string."));
        }
        None => return Err(missing(place, "source")),
    };
    let title = block.title.ok_or_else(|| missing(place, "title"))?;
    let content = block.content.ok_or_else(|| missing(place, "content"))?;
    Ok(joined(vec![title, source, text_of(content, place, notes)?]))
}

fn refuse_citations(block: &RawBlock, place: Place, notes: &mut Notes) -> Result<(), GatewayError> {
    let citations = block.citations.as_ref();
    if !citations.is_some_and(|citations| citations.is_used) {
        return Ok(());
    }
    notes.native_only(0, || {
        let path = format!("{place}.citations.enabled");
        wrong(path, "citations are not supported by this model.")
    })
}

/// The text within a document, whose blocks may be texts only.
fn text_of(content: Content, place: Place, notes: &mut Notes) -> Result<JsonText, GatewayError> {
    match content {
        Content::Text(text) => Ok(text),
        Content::Blocks(blocks) => {
            let texts = blocks.into_iter().map(|block| {
                if block.kind == "text" {
                    return block.text(place, notes);
                }
                notes.native_only(IMAGE_TOKENS, || {
                    let path = format!("{place}.document");
                    let reason = "this model reads text only; leave other blocks out of documents.";
                    wrong(path, reason)
                })?;
                notes.extras.is_unbounded = true;
                Ok(JsonText::new(""))
            });
            Ok(joined(texts.collect::<Result<_, _>>()?))
        }
    }
}
