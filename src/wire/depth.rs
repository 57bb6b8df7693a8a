//! Checks how deeply a JSON text is nested, without parsing it.

use memchr::memchr2;

/// The deepest nesting that is accepted: far more than any real schema has, far less than would exhaust a stack.
pub(crate) const MAX_DEPTH: usize = 128;

/// Whether the text nests deeper than [`MAX_DEPTH`].
///
/// Values that are only forwarded are never parsed, so the parser's own limit does not apply to them. Strings, the bulk
/// of a chat, are skipped from quote to quote. For text that is not JSON the result is meaningless; the parser refuses
/// such text afterwards.
pub(crate) fn too_deep(json: &[u8]) -> bool {
    if opening_brackets(json) <= MAX_DEPTH {
        return false;
    }
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => at = after_string(json, at),
            _ => {}
        }
    }
    false
}

/// Counts opening brackets and braces, including those in strings. Most texts have few, so this fast count usually
/// suffices.
fn opening_brackets(json: &[u8]) -> usize {
    let opens = |byte: &u8| u8::from(byte | 0x20 == b'{');
    // Chunks of 255 bytes, so that each count fits in a byte and the compiler can add many of them at once.
    let pieces = json.chunks(usize::from(u8::MAX));
    pieces
        .map(|piece| usize::from(piece.iter().map(opens).sum::<u8>()))
        .sum()
}

/// The index after the closing quote of the string whose content starts at `at`.
fn after_string(json: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr2(b'"', b'\\', &json[at.min(json.len())..]) {
        at += found;
        if json[at] == b'"' {
            return at + 1;
        }
        at += 2; // the backslash and the escaped character
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_brackets_outside_strings_count() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(!too_deep(nested(MAX_DEPTH).as_bytes()));
        assert!(too_deep(nested(MAX_DEPTH + 1).as_bytes()));
        assert!(too_deep("[".repeat(100_000).as_bytes()));
        let quoted = format!(r#"{{"a":"\"{}\\"}}"#, "[".repeat(1_000));
        assert!(!too_deep(quoted.as_bytes()));
        assert!(
            !too_deep(br#"{"a":"\"#),
            "the parser refuses a text that ends in an escape"
        );
    }
}
