//! The simulator's tokenizer, and the split of a response into streamed parts.

use crate::wire::{
    chat::{Answer, Choice},
    json_text::JsonText,
    part::Part,
};

const VOCABULARY: [&str; 8] = [
    "one ", "more ", "word ", "of ", "the ", "answer ", "you ", "ordered ",
];

/// A text of exactly this many tokens.
pub(crate) fn filler_text(tokens: u32) -> String {
    let vocabulary = VOCABULARY.iter().cycle();
    vocabulary.take(tokens as usize).copied().collect()
}

/// Splits a text into tokens: a word with the space after it, or eight characters of a longer word.
pub(crate) fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(char::is_whitespace)
        .flat_map(word_tokens)
}

fn word_tokens(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        // A space belongs to the token before it, so eight characters and a space are one token.
        let cut = rest.char_indices().nth(8).map_or(rest.len(), |(at, _)| at);
        let only_space_left = rest[cut..].trim().is_empty();
        let (piece, after) = rest.split_at(if only_space_left { rest.len() } else { cut });
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

pub(crate) fn count(text: &str) -> u32 {
    u32::try_from(split(text).count()).unwrap_or(u32::MAX)
}

/// The number of chunks in which the content of a response is streamed.
pub(crate) fn content_pieces(answer: &Answer) -> u32 {
    let content = answer
        .choices
        .first()
        .and_then(|choice| choice.content.as_ref());
    content.map_or(1, |content| count(&content.decode()))
}

/// The parts of a streamed response, one per token. Choices are split one after the other, to limit memory.
pub(crate) fn stream_parts(answer: Answer) -> impl Iterator<Item = Part> + Send {
    let usage = answer.usage.map(Part::Usage);
    answer
        .choices
        .into_iter()
        .flat_map(choice_parts)
        .chain(usage)
}

fn choice_parts(choice: Choice) -> Vec<Part> {
    let index = choice.index;
    let mut parts = Vec::new();
    if let Some(content) = choice.content {
        let text = content.decode();
        parts.extend(split(&text).map(|token| Part::Content {
            choice: index,
            text: JsonText::new(token),
            logprobs: None,
        }));
    }
    for (slot, call) in (0..).zip(choice.tool_calls) {
        let fragment = |id, name, arguments| Part::ToolCall {
            choice: index,
            slot,
            id,
            name,
            arguments,
        };
        parts.push(fragment(Some(call.id), Some(call.function.name), None));
        let arguments = call.function.arguments.decode();
        parts.extend(
            split(&arguments).map(|piece| fragment(None, None, Some(JsonText::new(piece)))),
        );
    }
    parts.push(Part::Finish {
        choice: index,
        reason: choice.finish,
    });
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_add_up_to_the_text() {
        for text in [
            "",
            "a",
            "Hello there, you",
            "  two  spaces ",
            "Donaudampfschifffahrt\n",
            "日本語のテキストです 😀",
        ] {
            assert_eq!(split(text).collect::<String>(), text);
        }
        assert_eq!(count(&filler_text(200)), 200);
        assert_eq!(count("Donaudampfschiff fahrt"), 3);
    }
}
