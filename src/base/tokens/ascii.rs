//! Pre-tokens of ASCII text on which both pre-tokenizers agree: the fast path for code, markup and JSON.

/// The length of the pre-token at the start of the text. 0 if the two pre-tokenizers may differ, or if characters
/// outside of ASCII may belong to it.
pub(crate) fn piece(text: &[u8]) -> usize {
    let Some(&first) = text.first() else { return 0 };
    let length = match first {
        b'\'' => 0,
        b'\t' | b'\n' | b'\r' | b' ' => match text.get(1) {
            Some(b'!'..=b'/' | b':'..=b'@' | b'['..=b'`' | b'{'..=b'~') if first == b' ' => {
                1 + marks(&text[1..])
            }
            Some(byte) if byte.is_ascii_alphabetic() && !matches!(first, b'\r' | b'\n') => {
                word(text, 1)
            }
            _ => white_space(text),
        },
        b'!'..=b'/' | b':'..=b'@' | b'['..=b'`' | b'{'..=b'~' => match text.get(1) {
            Some(byte) if byte.is_ascii_alphabetic() => word(text, 1),
            _ => marks(text),
        },
        b'a'..=b'z' | b'A'..=b'Z' => word(text, 0),
        _ => 0,
    };
    match text.get(length) {
        Some(next) if !next.is_ascii() => 0,
        _ => length,
    }
}

/// Whether the text starts with a letter, or with a space and a letter.
#[inline]
pub(crate) fn begins_word(text: &[u8]) -> bool {
    match text {
        [b' ', letter, ..] | [letter, ..] => letter.is_ascii_alphabetic(),
        [] => false,
    }
}

/// The end of the letters that start at `from`; 0 if o200k splits before a capital or may add a contraction.
fn word(text: &[u8], from: usize) -> usize {
    let letters = &text[from..];
    let upper = run(letters, u8::is_ascii_uppercase);
    let length = from + upper + run(&letters[upper..], u8::is_ascii_lowercase);
    match text.get(length) {
        Some(b'\'' | b'A'..=b'Z') => 0,
        _ => length,
    }
}

/// The length of punctuation and the newlines after it; 0 if o200k adds a slash to them.
fn marks(text: &[u8]) -> usize {
    let marks = run(text, u8::is_ascii_punctuation);
    let length = marks + run(&text[marks..], |byte| matches!(byte, b'\r' | b'\n'));
    match text.get(length) {
        Some(b'/') => 0,
        _ => length,
    }
}

/// The length of white space up to its last newline, or without its last character, which belongs to the next
/// pre-token. 0 at the end of the text, where tokenizers differ.
fn white_space(text: &[u8]) -> usize {
    let whole = run(text, |byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '));
    let newline = text[..whole]
        .iter()
        .rposition(|byte| matches!(byte, b'\r' | b'\n'));
    match (text.get(whole), newline) {
        // Vertical tab and form feed are white space as well.
        (None | Some(0x0B | 0x0C), _) => 0,
        (Some(next), _) if !next.is_ascii() => 0,
        (_, Some(newline)) => newline + 1,
        (_, None) => (whole - 1).max(1),
    }
}

/// How many leading digits both pre-tokenizers split into groups of three, whatever follows them.
pub(crate) fn digits(text: &[u8]) -> usize {
    let digits = run(text, u8::is_ascii_digit);
    match text.get(digits) {
        // A digit of another script may share a pre-token with the last of these.
        Some(next) if !next.is_ascii() => digits - digits % 3,
        _ => digits,
    }
}

/// The length of the leading bytes for which `of` holds.
fn run(text: &[u8], of: impl Fn(&u8) -> bool) -> usize {
    text.iter().position(|byte| !of(byte)).unwrap_or(text.len())
}
