//! Writes JSON piece by piece.
//!
//! Used for JSON that is written with every request: a derived serializer checks every character of every key for
//! escapes and takes several times as long.

use serde::Serialize;

/// The JSON text written so far.
#[derive(Debug, Default)]
pub(crate) struct JsonWriter(String);

impl JsonWriter {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// Appends JSON, or a part of it, unchanged.
    pub(crate) fn raw(&mut self, json: &str) -> &mut Self {
        self.0.push_str(json);
        self
    }

    pub(crate) fn number(&mut self, number: impl itoa::Integer) -> &mut Self {
        self.raw(itoa::Buffer::new().format(number))
    }

    /// Appends a text as a JSON string, escaped where needed.
    pub(crate) fn string(&mut self, text: &str) -> &mut Self {
        let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        if text.bytes().all(is_plain) {
            return self.raw("\"").raw(text).raw("\"");
        }
        self.raw(&serde_json::to_string(text).expect("a string serialises"))
    }

    /// Appends any serializable value.
    pub(crate) fn value(&mut self, value: &impl Serialize) -> &mut Self {
        self.raw(&serde_json::to_string(value).expect("strings, numbers and JSON serialise"))
    }

    pub(crate) fn list<T>(&mut self, items: &[T], write: impl Fn(&T, &mut Self)) -> &mut Self {
        self.raw("[");
        for (at, item) in items.iter().enumerate() {
            self.raw(if at == 0 { "" } else { "," });
            write(item, self);
        }
        self.raw("]")
    }

    /// Appends the fields of `object`, which must have at least one, to the object being written, and closes it.
    pub(crate) fn further_fields(&mut self, object: &impl Serialize) -> &mut Self {
        let object = serde_json::to_string(object).expect("strings, numbers and JSON serialise");
        let fields = object.strip_prefix('{').expect("an object");
        self.raw(",").raw(fields)
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_where_they_must_be() {
        for text in [
            "plain", "", "über", "a\"b", "a\\b", "a\nb", "a\u{1}b", "\u{7f}",
        ] {
            let mut json = JsonWriter::default();
            json.string(text);
            assert_eq!(json.into_string(), serde_json::to_string(text).unwrap());
        }
    }

    #[test]
    fn pieces_follow_each_other() {
        let mut json = JsonWriter::with_capacity(64);
        json.raw("{\"a\":").number(u64::MAX).raw(",\"b\":");
        json.number(-3_i64).raw(",\"c\":");
        json.list(&[], |_: &&str, _| {}).raw(",\"d\":");
        let quote = |text: &&str, json: &mut JsonWriter| {
            json.string(text);
        };
        json.list(&["x", "y"], quote);
        json.further_fields(&serde_json::json!({ "e": [1], "f": {} }));
        assert_eq!(
            json.into_string(),
            r#"{"a":18446744073709551615,"b":-3,"c":[],"d":["x","y"],"e":[1],"f":{}}"#
        );
    }
}
