//! JSON that is written piece by piece.
//!
//! For what is written with every request: a derived writer looks at every letter of every name, and takes several
//! times as long.

use serde::Serialize;

/// A text of JSON, as far as it has been written.
#[derive(Debug, Default)]
pub struct JsonWriter(String);

impl JsonWriter {
    pub fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// JSON as it stands, or a part of it.
    pub fn raw(&mut self, json: &str) -> &mut Self {
        self.0.push_str(json);
        self
    }

    pub fn number(&mut self, number: impl itoa::Integer) -> &mut Self {
        self.raw(itoa::Buffer::new().format(number))
    }

    /// A text, in quotes.
    pub fn string(&mut self, text: &str) -> &mut Self {
        let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        if text.bytes().all(is_plain) {
            return self.raw("\"").raw(text).raw("\"");
        }
        self.raw(&serde_json::to_string(text).expect("a string serialises"))
    }

    /// Anything else.
    pub fn value(&mut self, value: &impl Serialize) -> &mut Self {
        self.raw(&serde_json::to_string(value).expect("strings, numbers and JSON serialise"))
    }

    pub fn list<T>(&mut self, items: &[T], write: impl Fn(&T, &mut Self)) -> &mut Self {
        self.raw("[");
        for (at, item) in items.iter().enumerate() {
            self.raw(if at == 0 { "" } else { "," });
            write(item, self);
        }
        self.raw("]")
    }

    /// The fields of an object, which has at least one, after those that have been written; then the end of both.
    pub fn further_fields(&mut self, object: &impl Serialize) -> &mut Self {
        let object = serde_json::to_string(object).expect("strings, numbers and JSON serialise");
        let fields = object.strip_prefix('{').expect("an object");
        self.raw(",").raw(fields)
    }

    pub fn into_string(self) -> String {
        self.0
    }

    pub fn into_bytes(self) -> Vec<u8> {
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
