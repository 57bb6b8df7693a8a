//! Pre-tokenizers: how the two families of tokenizers split a text before they merge.
//!
//! Each function returns the length in bytes of the pre-token at the start of a text. They are the regular expressions
//! of cl100k and o200k written out, alternative by alternative; tests compare them with the tokenizers.

use std::str::Chars;

use super::kinds::kind;
use super::table::Kind;

/// The pre-tokenizer of cl100k. Llama 3 and Qwen differ only in numbers and in white space at the end. Its expression:
/// `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`
pub(crate) fn cl100k(text: &str) -> usize {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return 0 };
    let rest = chars.as_str();
    let contraction = contraction(text);
    if contraction > 0 {
        return contraction;
    }
    let is_letter = |kind| matches!(kind, Kind::Upper | Kind::Lower | Kind::Letter);
    let first_kind = kind(first);
    if first_kind != Kind::Newline && first_kind != Kind::Number {
        let letters = run(rest, is_letter);
        if letters > 0 || is_letter(first_kind) {
            return first.len_utf8() + letters;
        }
    }
    match first_kind {
        Kind::Number => numbers(text),
        Kind::Space | Kind::Newline => {
            let marks = if first == ' ' { marks(rest, b"") } else { 0 };
            if marks > 0 {
                1 + marks
            } else {
                white_space(text, |whole, _| whole)
            }
        }
        _ => marks(text, b""),
    }
}

/// The pre-tokenizer of o200k: words end before a capital, and include contractions and combining marks.
///
/// `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?`, the
/// same with `+` and `*` exchanged, `\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
pub(crate) fn o200k(text: &str) -> usize {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return 0 };
    let rest = chars.as_str();
    let first_kind = kind(first);
    let word = match first_kind {
        Kind::Newline | Kind::Number => 0,
        Kind::Upper | Kind::Lower | Kind::Letter => cased_word(text),
        // A mark is a word by itself if no word follows it.
        Kind::Mark => match cased_word(rest) {
            word if word > 0 && ends_lower(&rest[..word]) => first.len_utf8() + word,
            _ => cased_word(text),
        },
        Kind::Space | Kind::Other => match cased_word(rest) {
            0 => 0,
            word => first.len_utf8() + word,
        },
    };
    if word > 0 {
        return word + contraction(&text[word..]);
    }
    match first_kind {
        Kind::Number => numbers(text),
        Kind::Space | Kind::Newline => {
            let marks = if first == ' ' { marks(rest, b"/") } else { 0 };
            if marks > 0 {
                1 + marks
            } else {
                white_space(text, |_, through_newline| through_newline)
            }
        }
        _ => marks(text, b"/"),
    }
}

/// Whether the first of o200k's two alternatives matched: then the word ends with a character that is not a capital.
fn ends_lower(word: &str) -> bool {
    word.chars()
        .next_back()
        .is_some_and(|last| kind(last) != Kind::Upper)
}

/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`, else `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+`.
///
/// If no lowercase letter follows the first run, the expression backtracks to the last character of it that may also
/// belong to the second run.
fn cased_word(text: &str) -> usize {
    let mut uncased = 0;
    let mut length = 0;
    for (at, char) in text.char_indices() {
        length = at;
        match kind(char) {
            Kind::Upper => {}
            Kind::Letter | Kind::Mark => uncased = at + char.len_utf8(),
            Kind::Lower => {
                return at
                    + run(&text[at..], |kind| {
                        matches!(kind, Kind::Lower | Kind::Letter | Kind::Mark)
                    });
            }
            _ => return if uncased > 0 { uncased } else { at },
        }
        length += char.len_utf8();
    }
    if uncased > 0 { uncased } else { length }
}

/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)`; the long s (ſ) matches s.
fn contraction(text: &str) -> usize {
    let Some(rest) = text.strip_prefix('\'') else {
        return 0;
    };
    let mut chars = rest.chars();
    let lower = |chars: &mut Chars| chars.next().map(|char| char.to_ascii_lowercase());
    match (lower(&mut chars), lower(&mut chars)) {
        (Some('s' | 't' | 'm' | 'd'), _) => 2,
        (Some('ſ'), _) => 1 + 'ſ'.len_utf8(),
        (Some('r' | 'v'), Some('e')) | (Some('l'), Some('l')) => 3,
        _ => 0,
    }
}

/// `\p{N}{1,3}`
fn numbers(text: &str) -> usize {
    let three = text.chars().take(3);
    three
        .take_while(|char| kind(*char) == Kind::Number)
        .map(char::len_utf8)
        .sum()
}

/// `[^\s\p{L}\p{N}]+[\r\n]*`; bytes in `more` are allowed among the newlines.
fn marks(text: &str, more: &[u8]) -> usize {
    let marks = run(text, |kind| matches!(kind, Kind::Other | Kind::Mark));
    if marks == 0 {
        return 0;
    }
    let newlines = text.as_bytes()[marks..].iter();
    marks
        + newlines
            .take_while(|byte| matches!(byte, b'\r' | b'\n') || more.contains(byte))
            .count()
}

/// The length of white space up to its last newline, or without its last character, which belongs to the next
/// pre-token. At the end of the text, `at_end` chooses between the whole length and that up to the last newline.
fn white_space(text: &str, at_end: impl Fn(usize, usize) -> usize) -> usize {
    let whole = run(text, |kind| matches!(kind, Kind::Space | Kind::Newline));
    let space = &text[..whole];
    let newline = space.rfind(['\r', '\n']).map_or(0, |at| at + 1);
    let last = space.chars().next_back().map_or(0, char::len_utf8);
    match (newline, whole == text.len()) {
        (0, false) if whole > last => whole - last,
        (0, _) => whole,
        (newline, true) => at_end(whole, newline),
        (newline, false) => newline,
    }
}

/// The length in bytes of the leading characters whose kind matches.
fn run(text: &str, of: impl Fn(Kind) -> bool) -> usize {
    text.char_indices()
        .find(|(_, char)| !of(kind(*char)))
        .map_or(text.len(), |(at, _)| at)
}
