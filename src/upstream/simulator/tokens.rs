//! The simulator's tokens, and an answer as a stream of them.

use crate::wire::{
    chat::{Answer, Choice},
    json_text::JsonText,
    part::Part,
};

const VOCABULARY: [&str; 8] = [
    "one ", "more ", "word ", "of ", "the ", "answer ", "you ", "ordered ",
];

/// A text of exactly this many tokens.
pub fn words(tokens: u32) -> String {
    let vocabulary = VOCABULARY.iter().cycle();
    vocabulary.take(tokens as usize).copied().collect()
}

/// The text in tokens: a word with the space after it, long words in pieces of eight letters.
pub fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(char::is_whitespace)
        .flat_map(pieces_of_word)
}

fn pieces_of_word(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        // A space belongs to the piece before it, so eight letters and a space are one token.
        let cut = rest.char_indices().nth(8).map_or(rest.len(), |(at, _)| at);
        let only_space_left = rest[cut..].trim().is_empty();
        let (piece, after) = rest.split_at(if only_space_left { rest.len() } else { cut });
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

pub fn count_tokens(text: &str) -> u32 {
    u32::try_from(tokens(text).count()).unwrap_or(u32::MAX)
}

/// How many pieces of content an answer is streamed in.
pub fn pieces(answer: &Answer) -> u32 {
    let content = answer
        .choices
        .first()
        .and_then(|choice| choice.content.as_ref());
    content.map_or(1, |content| count_tokens(&content.decode()))
}

/// The answer, a token at a time: what a stream of it is made of. A choice is cut up when its
/// turn comes, so that many long ones do not stand side by side.
pub fn parts(answer: Answer) -> impl Iterator<Item = Part> + Send {
    let usage = answer.usage.map(Part::Usage);
    answer.choices.into_iter().flat_map(parts_of).chain(usage)
}

fn parts_of(choice: Choice) -> Vec<Part> {
    let index = choice.index;
    let mut parts = Vec::new();
    if let Some(content) = choice.content {
        let text = content.decode();
        parts.extend(tokens(&text).map(|token| Part::Content {
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
            tokens(&arguments).map(|piece| fragment(None, None, Some(JsonText::new(piece)))),
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
            assert_eq!(tokens(text).collect::<String>(), text);
        }
        assert_eq!(count_tokens(&words(200)), 200);
        assert_eq!(count_tokens("Donaudampfschiff fahrt"), 3);
    }
}
