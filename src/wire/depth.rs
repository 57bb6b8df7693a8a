//! How deeply a JSON text is nested, without parsing it.

use memchr::memchr2;

/// The deepest nesting that is read. Far beyond any real schema, far below any stack.
pub const MAX_DEPTH: usize = 128;

/// Whether the text nests deeper than [`MAX_DEPTH`].
///
/// Values we only forward are never parsed, so the parser's own limit does not see them. Strings,
/// the bulk of a chat, are skipped from quote to quote. On text that is not JSON the answer means
/// nothing, and the parser says so next.
pub fn too_deep(json: &[u8]) -> bool {
    if brackets(json) <= MAX_DEPTH {
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

/// How many brackets and braces are opened, be it within strings: most texts have few, and this is soon known.
fn brackets(json: &[u8]) -> usize {
    let opens = |byte: &u8| u8::from(byte | 0x20 == b'{');
    // So few at a time that their number fits in a byte, of which many are added up at once.
    let pieces = json.chunks(usize::from(u8::MAX));
    pieces
        .map(|piece| usize::from(piece.iter().map(opens).sum::<u8>()))
        .sum()
}

/// Where the string that was entered at `at` has ended.
fn after_string(json: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr2(b'"', b'\\', &json[at.min(json.len())..]) {
        at += found;
        if json[at] == b'"' {
            return at + 1;
        }
        at += 2; // the backslash and what it escapes
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
            "a text that ends in an escape is the parser's to refuse"
        );
    }
}
