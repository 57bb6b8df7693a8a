//! Texts as PostgreSQL can store them: without the character NUL, which becomes U+FFFD.

use std::borrow::Cow;

/// For a column of type `text`.
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        text.replace('\0', "\u{fffd}").into()
    } else {
        text.into()
    }
}

/// For a column of type `jsonb`, which refuses NUL also where it is escaped.
pub(crate) fn json(json: &str) -> Cow<'_, str> {
    if !json.contains("\\u0000") {
        return json.into();
    }
    let mut storable = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        storable.push_str(before);
        if let Some(after) = escape.strip_prefix("\\u0000") {
            storable.push_str("\\ufffd");
            rest = after;
            continue;
        }
        // The character after the backslash belongs to it: in `\\u0000` the second backslash begins no escape.
        let length = 1 + escape[1..].chars().next().map_or(0, char::len_utf8);
        storable.push_str(&escape[..length]);
        rest = &escape[length..];
    }
    storable.push_str(rest);
    storable.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nul_is_replaced_and_everything_else_is_kept() {
        assert_eq!(text("a\0b"), "a\u{fffd}b");
        assert_eq!(text("plain"), "plain");
        for (written, stored) in [
            (r#"{"a":"b"}"#, r#"{"a":"b"}"#),
            (r#"{"a":"b\u0000c"}"#, r#"{"a":"b\ufffdc"}"#),
            (
                r#"{"a":"\\u0000 is no NUL"}"#,
                r#"{"a":"\\u0000 is no NUL"}"#,
            ),
            (r#"{"a":"\\\u0000\n\u00e9"}"#, r#"{"a":"\\\ufffd\n\u00e9"}"#),
            (r#"["\u0000\u0000é"]"#, r#"["\ufffd\ufffdé"]"#),
        ] {
            assert_eq!(json(written), stored);
        }
    }
}
