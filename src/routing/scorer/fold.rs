//! Letters without their case.

use std::sync::LazyLock;

/// Lower case by way of upper case, so that a text and its upper-cased copy become the same one
/// (`ß` and `SS`, for instance).
pub(super) fn fold(text: &str, into: &mut String) {
    if text.is_ascii() {
        return small(text, into);
    }
    let mut rest = text;
    while !rest.is_empty() {
        // Even in other texts there are runs of ASCII, and they are many times faster.
        let (run, others) = rest.split_at(ascii(rest.as_bytes()));
        small(run, into);
        let end = others.bytes().position(|byte| byte.is_ascii());
        let (others, next) = others.split_at(end.unwrap_or(others.len()));
        for char in others.chars() {
            push(char, into);
        }
        rest = next;
    }
}

/// How many bytes, from the first on, are ASCII: by sixteens, then one by one.
fn ascii(bytes: &[u8]) -> usize {
    let (sixteens, _) = bytes.as_chunks::<16>();
    let many = sixteens.iter().take_while(|some| some.is_ascii()).count() * 16;
    let few = bytes[many..].iter().take_while(|byte| byte.is_ascii());
    many + few.count()
}

fn small(ascii: &str, into: &mut String) {
    let start = into.len();
    into.push_str(ascii);
    into[start..].make_ascii_lowercase();
}

fn push(char: char, into: &mut String) {
    if without_case(char) {
        return into.push(char);
    }
    match FEW.get(char as usize) {
        Some(&folded) if folded != SEVERAL => into.push(folded),
        _ => into.extend(slowly(char)),
    }
}

fn slowly(char: char) -> impl Iterator<Item = char> {
    char.to_uppercase().flat_map(char::to_lowercase)
}

/// Scripts in which no letter has a case, from Hebrew to Burmese and from Chinese to Korean: they
/// need not be looked up.
fn without_case(char: char) -> bool {
    matches!(char, '\u{590}'..='\u{109f}' | '\u{2e80}'..='\u{a63f}' | '\u{ac00}'..='\u{d7ff}')
}

/// Stands for letters that become several.
const SEVERAL: char = '\0';

/// The letters of Latin, Greek and Cyrillic, each looked up once.
static FEW: LazyLock<[char; 0x590]> = LazyLock::new(|| {
    std::array::from_fn(|code| {
        let char = char::from_u32(code as u32).unwrap_or_default();
        let mut folded = slowly(char);
        match (folded.next(), folded.next()) {
            (Some(one), None) => one,
            _ => SEVERAL,
        }
    })
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_cuts_change_nothing() {
        for char in ('\0'..=char::MAX).filter(|char| !char.is_ascii()) {
            let (mut folded, slow) = (String::new(), slowly(char).collect::<String>());
            fold(char.encode_utf8(&mut [0; 4]), &mut folded);
            assert_eq!(folded, slow, "{char:?}");
        }
    }
}
