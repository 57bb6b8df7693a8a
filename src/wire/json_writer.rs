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

    /// Appends the fields of `object` to the object being written, which has one at least, and closes it.
    pub(crate) fn further_fields(&mut self, object: &impl Serialize) -> &mut Self {
        let object = serde_json::to_string(object).expect("strings, numbers and JSON serialise");
        let fields = object.strip_prefix('{').expect("an object");
        self.raw(if fields == "}" { "" } else { "," }).raw(fields)
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
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    /// Any JSON, a few levels deep.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "(?s).{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("(?s).{0,4}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn any_object() -> impl Strategy<Value = Map<String, Value>> {
        prop::collection::btree_map("(?s)b.{0,4}", any_json(), 0..4)
            .prop_map(|fields| fields.into_iter().collect())
    }

    proptest! {
        /// The text is what `serde_json` reads as the same value, for each way to write a piece.
        #[test]
        fn every_value_is_read_as_it_was_written(
            text in "(?s).{0,40}",
            number in any::<u64>(),
            values in prop::collection::vec(any_json(), 0..4),
            fields in any_object(),
        ) {
            let mut json = JsonWriter::default();
            json.raw("{\"a\":[").string(&text).raw(",").number(number).raw(",");
            json.list(&values, |value, json| {
                json.value(value);
            });
            json.raw("]").further_fields(&fields);
            let read: Value = serde_json::from_str(&json.into_string()).unwrap();
            let mut expected = json!({ "a": [text, number, values] });
            expected.as_object_mut().unwrap().extend(fields);
            prop_assert_eq!(read, expected);
        }
    }

    #[test]
    fn no_further_fields_add_nothing() {
        let mut json = JsonWriter::default();
        json.raw("{\"a\":1").further_fields(&json!({}));
        assert_eq!(json.into_string(), "{\"a\":1}");
    }

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
        json.further_fields(&json!({ "e": [1], "f": {} }));
        assert_eq!(
            json.into_string(),
            r#"{"a":18446744073709551615,"b":-3,"c":[],"d":["x","y"],"e":[1],"f":{}}"#
        );
    }
}
