//! Case folding.

use std::sync::LazyLock;

/// Appends the text in lower case. Letters are converted to upper case first, so that a text and its upper-case form
/// are folded alike (`ß` and `SS`, for instance).
pub(super) fn fold(text: &str, into: &mut String) {
    if text.is_ascii() {
        return push_lowercase(text, into);
    }
    let mut rest = text;
    while !rest.is_empty() {
        // Runs of ASCII, which other texts have too, are folded many times faster.
        let (run, others) = rest.split_at(ascii_prefix(rest.as_bytes()));
        push_lowercase(run, into);
        let end = others.bytes().position(|byte| byte.is_ascii());
        let (others, next) = others.split_at(end.unwrap_or(others.len()));
        for char in others.chars() {
            push(char, into);
        }
        rest = next;
    }
}

/// Length of the ASCII prefix: checked in blocks of 16, then byte by byte.
fn ascii_prefix(bytes: &[u8]) -> usize {
    let (sixteens, _) = bytes.as_chunks::<16>();
    let many = sixteens.iter().take_while(|some| some.is_ascii()).count() * 16;
    let tail = bytes[many..].iter().take_while(|byte| byte.is_ascii());
    many + tail.count()
}

fn push_lowercase(ascii: &str, into: &mut String) {
    let start = into.len();
    into.push_str(ascii);
    into[start..].make_ascii_lowercase();
}

fn push(char: char, into: &mut String) {
    if without_case(char) {
        return into.push(char);
    }
    match FOLDED.get(char as usize) {
        Some(&folded) if folded != EXPANDS => into.push(folded),
        _ => into.extend(fold_char(char)),
    }
}

fn fold_char(char: char) -> impl Iterator<Item = char> {
    char.to_uppercase().flat_map(char::to_lowercase)
}

/// Whether a character belongs to a script without case (Hebrew to Burmese, Chinese to Korean), which needs no lookup.
fn without_case(char: char) -> bool {
    matches!(char, '\u{590}'..='\u{109f}' | '\u{2e80}'..='\u{a63f}' | '\u{ac00}'..='\u{d7ff}')
}

/// Marks letters that fold to several characters.
const EXPANDS: char = '\0';

/// The folded forms of Latin, Greek and Cyrillic letters, computed once.
static FOLDED: LazyLock<[char; 0x590]> = LazyLock::new(|| {
    std::array::from_fn(|code| {
        let char = char::from_u32(code as u32).unwrap_or_default();
        let mut folded = fold_char(char);
        match (folded.next(), folded.next()) {
            (Some(one), None) => one,
            _ => EXPANDS,
        }
    })
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_paths_agree_with_the_slow_one() {
        for char in ('\0'..=char::MAX).filter(|char| !char.is_ascii()) {
            let (mut folded, slow) = (String::new(), fold_char(char).collect::<String>());
            fold(char.encode_utf8(&mut [0; 4]), &mut folded);
            assert_eq!(folded, slow, "{char:?}");
        }
    }
}
