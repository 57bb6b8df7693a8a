//! Checks how deeply a JSON text is nested and how many values it has, without parsing it.
//!
//! Both are bounded before a body is parsed. A parsed value takes many times the memory of its text (`0,` is two bytes,
//! a value in a tree is dozens), so without a bound a large body of tiny values would exhaust memory, whichever field
//! they are in.

use memchr::memchr2;

/// The deepest nesting that is accepted: far more than any real schema has, far less than would exhaust a stack.
pub(crate) const MAX_DEPTH: usize = 128;

/// The most values that are accepted: several times those of the longest conversations of agents. Objects, arrays and
/// their entries count; texts of any length are one value.
pub(crate) const MAX_VALUES: usize = 100_000;

/// The bound that a text exceeds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Excess<'a> {
    Depth,
    /// Too many values. `field` is the field of the outermost object in which the bound was passed, where that is known.
    Values {
        field: Option<&'a str>,
    },
}

/// Whether the text nests deeper than [`MAX_DEPTH`].
///
/// Values that are only forwarded are never parsed, so the parser's own limit does not apply to them.
pub(crate) fn too_deep(json: &[u8]) -> bool {
    may_be_deep(json) && matches!(scan(json, usize::MAX), Some(Excess::Depth))
}

/// The bound that the text exceeds, if any.
///
/// Strings, the bulk of a chat, are skipped from quote to quote. For text that is not JSON the result is meaningless;
/// the parser refuses such text afterwards.
pub(crate) fn excess(json: &[u8]) -> Option<Excess<'_>> {
    if may_be_deep(json) || may_have_many_values(json) {
        scan(json, MAX_VALUES)
    } else {
        None
    }
}

/// Whether the text has more opening brackets than are accepted in a row. Those in strings are included, because this
/// fast count suffices for most texts.
fn may_be_deep(json: &[u8]) -> bool {
    count(json, |byte| byte | 0x20 == b'{') > MAX_DEPTH
}

/// Whether the text has more commas and brackets than values are accepted, including those in strings.
fn may_have_many_values(json: &[u8]) -> bool {
    json.len() > MAX_VALUES && count(json, |byte| byte == b',' || byte | 0x20 == b'{') > MAX_VALUES
}

fn count(json: &[u8], wanted: impl Fn(u8) -> bool) -> usize {
    // Chunks of 255 bytes, so that each count fits in a byte and the compiler can add many of them at once.
    let pieces = json.chunks(usize::from(u8::MAX));
    let found = |piece: &[u8]| piece.iter().map(|byte| u8::from(wanted(*byte))).sum::<u8>();
    pieces.map(|piece| usize::from(found(piece))).sum()
}

/// Counts depth and values exactly. Every value but the first of its array or object has a comma before it.
fn scan(json: &[u8], max_values: usize) -> Option<Excess<'_>> {
    let (mut depth, mut values, mut at) = (0_usize, 0_usize, 0);
    // The last string directly in the outermost object: the name of the field whose value is an array or an object now.
    let mut field: &[u8] = b"";
    while let Some(&byte) = json.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                values += 1;
                if depth > MAX_DEPTH {
                    return Some(Excess::Depth);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            b'"' => {
                let end = after_string(json, at);
                if depth == 1 {
                    field = json.get(at..end - 1).unwrap_or_default();
                }
                at = end;
            }
            _ => {}
        }
        if values > max_values {
            let field = Some(field).filter(|_| depth > 1);
            return Some(Excess::Values {
                field: field.and_then(plain_name),
            });
        }
    }
    None
}

/// The name of a field, if it can be shown as it is written.
fn plain_name(name: &[u8]) -> Option<&str> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_name = (1..=64).contains(&name.len()) && name.iter().all(is_plain);
    std::str::from_utf8(name).ok().filter(|_| is_name)
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
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn only_brackets_outside_strings_count() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(!too_deep(nested(MAX_DEPTH).as_bytes()));
        assert!(too_deep(nested(MAX_DEPTH + 1).as_bytes()));
        assert!(too_deep("[".repeat(100_000).as_bytes()));
        assert_eq!(excess("[".repeat(200_000).as_bytes()), Some(Excess::Depth));
        let quoted = format!(r#"{{"a":"\"{}\\"}}"#, "[".repeat(1_000));
        assert!(!too_deep(quoted.as_bytes()));
        assert!(
            !too_deep(br#"{"a":"\"#),
            "the parser refuses a text that ends in an escape"
        );
    }

    #[test]
    fn the_field_with_too_many_values_is_named() {
        let many = |value: &str| format!("[{}{value}]", format!("{value},").repeat(MAX_VALUES));
        for value in ["0", "{}", "\"\"", "[]", "\"a,b\""] {
            let json = format!(r#"{{"model":"m","stop":{},"x":1}}"#, many(value));
            let found = excess(json.as_bytes());
            let field = Some("stop");
            assert_eq!(found, Some(Excess::Values { field }), "{value}");
            assert!(!too_deep(json.as_bytes()));
        }
        for unnamed in [
            many("0"),
            format!("{{{}}}", r#""a":1,"#.repeat(MAX_VALUES + 1)),
            format!(r#"{{"a\u0062":{}}}"#, many("0")),
            format!(r#"{{"{}":{}}}"#, "x".repeat(65), many("0")),
        ] {
            let found = excess(unnamed.as_bytes());
            assert_eq!(found, Some(Excess::Values { field: None }));
        }
        let commas = format!(r#"{{"content":"{}"}}"#, ",[{".repeat(MAX_VALUES));
        assert_eq!(excess(commas.as_bytes()), None, "a text is one value");
    }

    /// The values of a tree, counted as `scan` counts them.
    fn values(value: &Value) -> usize {
        let several = |len: usize| 1 + len.saturating_sub(1);
        match value {
            Value::Array(all) => several(all.len()) + all.iter().map(values).sum::<usize>(),
            Value::Object(all) => several(all.len()) + all.values().map(values).sum::<usize>(),
            _ => 0,
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            r#"[a-z,{}\[\]"\\]{0,6}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::hash_map(r#"[a-z,\["]{0,3}"#, inner, 0..5)
                    .prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_are_counted_as_a_parser_counts_them(json in json()) {
            let (text, count) = (json.to_string(), values(&json));
            prop_assert_eq!(scan(text.as_bytes(), count), None);
            if count > 0 {
                prop_assert!(scan(text.as_bytes(), count - 1).is_some());
            }
        }

        #[test]
        fn any_bytes_are_scanned_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            scan(&bytes, 10);
            scan(&bytes, usize::MAX);
        }
    }
}
