//! Documents and search results, as far as they are text.

use super::{
    blocks::{Notes, Place, RawBlock, joined, missing, wrong},
    fields::{Content, Source},
};
use crate::wire::{error::GatewayError, json_text::JsonText};

/// A document as text: title, context and content. A PDF, or a document elsewhere, is refused.
pub(super) fn document(block: RawBlock, place: Place) -> Result<JsonText, GatewayError> {
    refuse_citations(&block, place)?;
    let Some(Source::Object(source)) = block.source else {
        return Err(missing(place, "source"));
    };
    let content = match (source.kind.as_str(), source.data, source.content) {
        ("text", Some(text), _) => text,
        ("text", None, _) => return Err(missing(place, "source.data")),
        ("content", _, Some(content)) => text_of(content, place)?,
        ("content", _, None) => return Err(missing(place, "source.content")),
        _ => {
            let path = format!("{place}.document");
            let reason = "this model reads text only; send the document as text.";
            return Err(wrong(path, reason));
        }
    };
    let texts = [block.title, block.context, Some(content)];
    Ok(joined(texts.into_iter().flatten().collect()))
}

/// A search result as text: title, source and content.
pub(super) fn search_result(block: RawBlock, place: Place) -> Result<JsonText, GatewayError> {
    refuse_citations(&block, place)?;
    let source = match block.source {
        Some(Source::Text(source)) => source,
        Some(Source::Object(_)) => {
            return Err(wrong(format!("{place}.source"), "it must be a string."));
        }
        None => return Err(missing(place, "source")),
    };
    let title = block.title.ok_or_else(|| missing(place, "title"))?;
    let content = block.content.ok_or_else(|| missing(place, "content"))?;
    Ok(joined(vec![title, source, text_of(content, place)?]))
}

fn refuse_citations(block: &RawBlock, place: Place) -> Result<(), GatewayError> {
    let citations = block.citations.as_ref();
    if citations.is_some_and(|citations| citations.is_used) {
        let path = format!("{place}.citations.enabled");
        return Err(wrong(path, "citations are not supported by this model."));
    }
    Ok(())
}

/// The text within a document, whose blocks may be texts only.
fn text_of(content: Content, place: Place) -> Result<JsonText, GatewayError> {
    match content {
        Content::Text(text) => Ok(text),
        Content::Blocks(blocks) => {
            let texts = blocks.into_iter().map(|block| match block.kind.as_str() {
                "text" => block.text(place, &mut Notes::default()),
                _ => Err(wrong(
                    format!("{place}.document"),
                    "this model reads text only; leave other blocks out of documents.",
                )),
            });
            Ok(joined(texts.collect::<Result<_, _>>()?))
        }
    }
}
