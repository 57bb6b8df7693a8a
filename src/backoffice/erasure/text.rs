//! Replacing addresses within a text.

/// A text with other texts in place of these addresses, which are in lower case; `None` if it has none of them. `erased`
/// replaces the whole text if its addresses cannot be located.
pub(super) fn replaced<'a>(
    text: &str,
    addresses: impl Iterator<Item = (&'a str, &'a str)>,
    erased: &str,
) -> Option<String> {
    let lower = text.to_lowercase();
    let mut found = Vec::new();
    for (address, by) in addresses {
        let places = lower.match_indices(address).map(|(at, _)| at);
        let whole = places.filter(|at| is_whole(&lower, *at, *at + address.len()));
        found.extend(whole.map(|at| (at, at + address.len(), by)));
    }
    if found.is_empty() {
        return None;
    }
    // In lower case some characters have another length: then positions differ from those of the text.
    if !text.is_ascii() {
        return Some(erased.to_owned());
    }
    found.sort_unstable();
    let (mut replaced, mut rest) = (String::new(), 0);
    for (from, to, by) in found {
        if from >= rest {
            replaced.push_str(&text[rest..from]);
            replaced.push_str(by);
            rest = to;
        }
    }
    replaced.push_str(&text[rest..]);
    Some(replaced)
}

/// Whether no longer address contains what is from one place to another.
fn is_whole(text: &str, from: usize, to: usize) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || "._%+-".contains(c);
    let before = text[..from].chars().next_back();
    let mut after = text[to..].chars();
    let next = after.next();
    // A full stop ends a sentence, unless an alphanumeric character follows.
    let next = if next == Some('.') {
        after.next()
    } else {
        next
    };
    !before.is_some_and(goes_on) && !next.is_some_and(|c| c.is_alphanumeric() || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_addresses_are_replaced_wherever_they_are() {
        let known = [
            ("ada@example.com", "person_1"),
            ("bob@example.com", "person_2"),
        ];
        let of = |text: &str| replaced(text, known.into_iter(), "deleted");
        for (text, expected) in [
            ("ada@example.com", "person_1"),
            ("Paid by card (Ada@Example.com)", "Paid by card (person_1)"),
            (
                "For bob@example.com, ada@example.com.",
                "For person_2, person_1.",
            ),
            ("für ada@example.com", "deleted"),
        ] {
            assert_eq!(of(text).as_deref(), Some(expected), "{text}");
        }
        for other in [
            "",
            "a gift",
            "grada@example.com",
            "x.ada@example.com",
            "ada@example.com.au",
            "ada@example.community",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
