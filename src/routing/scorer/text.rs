//! Splits the relevant part of a prompt into tokens.
//!
//! Case, spacing and courtesies at both ends do not change the difficulty of a task, so they are removed here and
//! cannot influence any feature.

use std::sync::LazyLock;

use super::{
    class, courtesy,
    fold::fold,
    hash,
    token::{Kind, Token},
};

/// Bytes read at each end of a long prompt: the task is stated at the beginning or at the end.
const WINDOW: usize = 4096;
/// Appended to the text, so that eight bytes can be loaded at any position of it.
const PADDING: &str = "\0\0\0\0\0\0\0\0";

/// A prompt split into tokens. Its buffers are reused between prompts, so that reading does not allocate.
#[derive(Default)]
pub(super) struct Reading {
    text: String,
    tokens: Vec<Token>,
    start: usize,
    end: usize,
}

impl Reading {
    pub(crate) fn read(&mut self, prompt: &str) {
        self.text.clear();
        self.tokens.clear();
        if prompt.len() <= 2 * WINDOW {
            fold(prompt, &mut self.text);
        } else {
            fold(
                &prompt[..prompt.floor_char_boundary(WINDOW)],
                &mut self.text,
            );
            self.text.push(' ');
            fold(
                &prompt[prompt.ceil_char_boundary(prompt.len() - WINDOW)..],
                &mut self.text,
            );
        }
        self.text.push_str(PADDING);
        split(&self.text, &mut self.tokens);
        (self.start, self.end) = courtesy::without(&self.tokens);
    }

    /// Whether the prompt is only a courtesy, without a task.
    pub(crate) fn is_courtesy(&self) -> bool {
        courtesy::is_all(&self.tokens, self.start..self.end)
    }

    /// The tokens without courtesies at both ends.
    pub(crate) fn tokens(&self) -> &[Token] {
        &self.tokens[self.start..self.end]
    }

    pub(crate) fn text(&self, token: &Token) -> &str {
        &self.text[token.start as usize..token.end as usize]
    }

    /// The text from a token's start, with padding, so that eight bytes can be loaded at a time.
    pub(crate) fn from(&self, token: &Token) -> &[u8] {
        &self.text.as_bytes()[token.start as usize..]
    }
}

/// What kind of token a byte starts.
#[derive(Clone, Copy)]
enum Starts {
    Nothing,
    Word,
    Number,
    Mark,
    /// A character that is not ASCII and must be looked up.
    Other,
}

static STARTS: [Starts; 256] = {
    let (mut table, mut at) = ([Starts::Other; 256], 0_u8);
    while at < 128 {
        table[at as usize] = match at {
            _ if at.is_ascii_alphabetic() => Starts::Word,
            _ if at.is_ascii_digit() => Starts::Number,
            _ if at.is_ascii_graphic() => Starts::Mark,
            _ => Starts::Nothing,
        };
        at += 1;
    }
    table
};

/// The kind of token that a character belongs to; `None` for separators.
fn kind(char: char) -> Option<Kind> {
    match char {
        _ if char.is_whitespace() || char.is_control() => None,
        _ if char.is_alphabetic() => Some(Kind::Word),
        _ if char.is_numeric() => Some(Kind::Number),
        _ => Some(Kind::Mark),
    }
}

/// The kinds of all characters up to U+FFFF, computed once when the weights are loaded, because the lookup is slow.
pub(super) static KINDS: LazyLock<Vec<Option<Kind>>> = LazyLock::new(|| {
    let known = 0..=u32::from(u16::MAX);
    let kind = |code| char::from_u32(code).and_then(kind);
    known.map(kind).collect()
});

fn known_kind(char: char) -> Option<Kind> {
    let known = KINDS.get(char as usize).copied();
    known.unwrap_or_else(|| kind(char))
}

/// Whether a character is a word by itself, as in Chinese, which has no spaces between words.
fn is_single_word(char: char) -> bool {
    matches!(char, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// The character at a byte index, which must be a character boundary within the text.
fn char_at(text: &str, at: usize) -> char {
    let byte = text.as_bytes()[at];
    if byte.is_ascii() {
        return byte.into();
    }
    text[at..].chars().next().unwrap_or_default()
}

/// Eight bytes as a little-endian number.
pub(super) fn load_u64(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The lowest `count` bytes of a number; `count` must be at least 1.
pub(super) fn low_bytes(eight: u64, count: usize) -> u64 {
    eight << (64 - 8 * count) >> (64 - 8 * count)
}

/// How many of eight bytes, from the first, are lower-case letters or apostrophes.
///
/// All eight bytes are tested at once; the result is in the top bit of each. A letter has its top bit set after adding
/// 0x1f but not after adding 0x05. An apostrophe is the only byte that becomes zero by XOR with an apostrophe.
fn letters(eight: u64) -> usize {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let low = eight & (0x7f * EACH);
    let letter = (low + 0x1f * EACH) & !(low + 0x05 * EACH);
    let other = (low ^ (0x27 * EACH)) + 0x7f * EACH;
    let stops = ((!letter & other) | eight) & (0x80 * EACH);
    stops.trailing_zeros() as usize / 8
}

fn split(text: &str, tokens: &mut Vec<Token>) {
    let bytes = text.as_bytes();
    let end = text.len() - PADDING.len();
    let mut at = 0;
    while at < end {
        at = match STARTS[usize::from(bytes[at])] {
            Starts::Nothing => at + 1,
            Starts::Word => word(text, at, tokens),
            Starts::Number => run(text, at, Kind::Number, tokens),
            Starts::Mark => mark(bytes, at, tokens),
            Starts::Other => {
                let first = char_at(text, at);
                match known_kind(first) {
                    None => at + first.len_utf8(),
                    Some(kind) => run(text, at, kind, tokens),
                }
            }
        };
    }
}

// Each of the following functions appends the token that starts at an index and returns the index of its end.

/// A word that starts with an ASCII letter.
#[inline]
fn word(text: &str, start: usize, tokens: &mut Vec<Token>) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut hash) = (start, hash::EMPTY);
    loop {
        let next = load_u64(bytes, at);
        let letters = letters(next);
        at += letters;
        if letters < 8 {
            if letters > 0 {
                hash = hash::step(hash, low_bytes(next, letters));
            }
            break;
        }
        hash = hash::step(hash, next);
    }
    if !bytes[at].is_ascii() {
        return run(text, start, Kind::Word, tokens);
    }
    tokens.push(Token {
        hash,
        start: start as u32,
        end: at as u32,
        first: bytes[start].into(),
        letters: (at - start) as u32,
        kind: Kind::Word,
        class: class::of_word(hash),
    });
    at
}

/// The hash of each ASCII sign.
static SIGNS: [u64; 128] = {
    let (mut table, mut at) = ([0; 128], 0_u8);
    while at < 128 {
        table[at as usize] = hash::of(hash::EMPTY, &[at]);
        at += 1;
    }
    table
};

/// A run of one ASCII sign.
#[inline]
fn mark(bytes: &[u8], start: usize, tokens: &mut Vec<Token>) -> usize {
    let first = bytes[start];
    let mut at = start + 1;
    while bytes[at] == first {
        at += 1;
    }
    tokens.push(Token {
        hash: SIGNS[usize::from(first) % SIGNS.len()],
        start: start as u32,
        end: at as u32,
        first: first.into(),
        letters: (at - start) as u32,
        kind: Kind::Mark,
        class: class::of_sign(first.into()),
    });
    at
}

/// A token of any kind, a character at a time.
fn run(text: &str, start: usize, kind: Kind, tokens: &mut Vec<Token>) -> usize {
    let first = char_at(text, start);
    let mut at = start + first.len_utf8();
    let mut letters = 1;
    loop {
        let next = char_at(text, at);
        let joins = match kind {
            Kind::Word => {
                next == '\'' || known_kind(next) == Some(Kind::Word) && !is_single_word(next)
            }
            Kind::Number => known_kind(next) == Some(Kind::Number),
            Kind::Mark => next == first,
        };
        if !joins || is_single_word(first) {
            break;
        }
        letters += 1;
        at += next.len_utf8();
    }
    let bytes = &text.as_bytes()[start..at];
    let hash = match kind {
        Kind::Word => hash::of(hash::EMPTY, bytes),
        // Only the length of a number is hashed: its value does not matter.
        Kind::Number => hash::of(hash::EMPTY, &[0, b'#', bytes.len().min(6) as u8]),
        Kind::Mark => hash::of(hash::EMPTY, &bytes[..first.len_utf8()]),
    };
    tokens.push(Token {
        hash,
        start: start as u32,
        end: at as u32,
        first,
        letters,
        kind,
        class: match kind {
            Kind::Word => class::of_word(hash),
            Kind::Number => class::NUMBER,
            Kind::Mark => class::of_sign(first),
        },
    });
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens(text: &str) -> Vec<String> {
        let mut reading = Reading::default();
        reading.read(text);
        let tokens = reading.tokens().iter();
        tokens.map(|token| reading.text(token).into()).collect()
    }

    #[test]
    fn words_numbers_and_runs_of_signs_are_separate_tokens() {
        for (text, expected) in [
            ("Don't stop", vec!["don't", "stop"]),
            ("a==b...c", vec!["a", "==", "b", "...", "c"]),
            ("x2 1,000½", vec!["x", "2", "1", ",", "000½"]),
            ("Straße NAÏVETÉ", vec!["strasse", "naïveté"]),
            (
                "incomprehensibilities, sure",
                vec!["incomprehensibilities", ",", "sure"],
            ),
            (
                "abcdefgh ijklmnopqrstuvwx",
                vec!["abcdefgh", "ijklmnopqrstuvwx"],
            ),
            ("为什么? なぜ", vec!["为", "什", "么", "?", "なぜ"]),
            ("\u{0}\u{7f}a\u{a0}b", vec!["a", "b"]),
        ] {
            assert_eq!(tokens(text), expected, "{text}");
        }
    }

    proptest! {
        /// The fast count equals a count byte by byte.
        #[test]
        fn letters_are_counted(bytes: [u8; 8]) {
            let joins = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'\'';
            let slow = bytes.iter().take_while(|byte| joins(byte)).count();
            prop_assert_eq!(letters(u64::from_le_bytes(bytes)), slow);
        }

        #[test]
        fn a_word_has_the_hash_of_its_letters(word in "[a-z][a-z']{0,30}", after in "[ .é]?") {
            let mut reading = Reading::default();
            reading.read(&format!("{word}{after}"));
            let text = reading.text(&reading.tokens[0]);
            prop_assert_eq!(reading.tokens[0].hash, hash::word(text));
        }
    }
}
