//! A JSON string as it stood on the wire.

use std::borrow::Cow;

use memchr::{memchr, memmem};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::value::RawValue;

/// Why a string means nothing, though it is JSON.
pub const HALF_A_PAIR: &str = "it has half of a surrogate pair (a `\\uD800` to `\\uDFFF` without its other half), \
    which is no character";

/// A JSON string that is passed on without being unescaped and escaped again.
///
/// It always decodes: a text with half a surrogate pair is refused when it is made.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct JsonText(Box<RawValue>);

impl JsonText {
    pub fn new(text: &str) -> Self {
        Self(serde_json::value::to_raw_value(text).expect("a string serialises"))
    }

    /// The string, if `raw` is one that means something.
    pub fn from_raw(raw: &RawValue) -> Option<Self> {
        Self::from_boxed(raw.to_owned())
    }

    /// The same, without a copy.
    pub fn from_boxed(raw: Box<RawValue>) -> Option<Self> {
        let json = raw.get();
        if !json.starts_with('"') {
            return None;
        }
        // Everything but surrogates was checked when the JSON was read.
        let may_have_surrogates = memchr(b'\\', json.as_bytes()).is_some()
            && (json.contains("\\ud") || json.contains("\\uD"));
        if may_have_surrogates && serde_json::from_str::<String>(json).is_err() {
            return None;
        }
        Some(Self(raw))
    }

    /// The texts in order, one a line.
    pub fn join_lines<'a>(texts: impl IntoIterator<Item = &'a JsonText>) -> Self {
        Self::join(texts, "\\n")
    }

    /// The texts in order, as one.
    pub fn concat<'a>(texts: impl IntoIterator<Item = &'a JsonText>) -> Self {
        Self::join(texts, "")
    }

    /// `separator` is JSON as it stands within a string.
    fn join<'a>(texts: impl IntoIterator<Item = &'a JsonText>, separator: &str) -> Self {
        let mut json = String::from("\"");
        for (position, text) in texts.into_iter().enumerate() {
            if position > 0 {
                json.push_str(separator);
            }
            json.push_str(text.inner());
        }
        json.push('"');
        Self(RawValue::from_string(json).expect("JSON strings joined by an escape are one"))
    }

    pub fn decode(&self) -> String {
        serde_json::from_str(self.0.get()).expect("checked when it was made")
    }

    /// The text, copied only where something in it is escaped.
    pub fn text(&self) -> Cow<'_, str> {
        let inner = self.inner();
        match memchr(b'\\', inner.as_bytes()) {
            None => Cow::Borrowed(inner),
            Some(_) => Cow::Owned(self.decode()),
        }
    }

    /// The JSON literal, quotes included.
    pub fn as_json(&self) -> &str {
        self.0.get()
    }

    pub fn is_empty(&self) -> bool {
        self.inner().is_empty()
    }

    fn inner(&self) -> &str {
        let json = self.0.get();
        &json[1..json.len() - 1]
    }
}

/// JSON with characters in the place of their numbers, and otherwise as it stands: nobody is charged for how a text was
/// escaped. In one pass and without a tree, because it may be as large as a body.
pub fn with_characters(json: &str) -> Cow<'_, str> {
    if memmem::find(json.as_bytes(), b"\\u").is_none() {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = memchr(b'\\', rest.as_bytes()) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let (escaped, length) = match character(rest) {
            Some(found) => found,
            // Another escape, with what it escapes; half a surrogate pair stays as it stood.
            None => (None, rest.chars().take(2).map(char::len_utf8).sum()),
        };
        match escaped {
            Some(char) => text.push(char),
            None => text.push_str(&rest[..length]),
        }
        rest = &rest[length..];
    }
    text.push_str(rest);
    Cow::Owned(text)
}

/// The character that a text begins with as one or two `\uXXXX`, and the length of that.
fn character(json: &str) -> Option<(Option<char>, usize)> {
    let unit = |from: usize| {
        let digits = json.get(from..from + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let first = unit(0)?;
    let pair = [first, unit(6).unwrap_or(0)];
    let length = if (0xD800..0xDC00).contains(&first) {
        12
    } else {
        6
    };
    let char = char::decode_utf16(pair[..length / 6].iter().copied())
        .next()?
        .ok();
    Some(char.map_or((None, 6), |char| (Some(char), length)))
}

/// A text that comes in pieces.
#[derive(Debug, Default)]
pub struct TextBuffer {
    /// JSON as it stands within a string.
    inner: String,
}

impl TextBuffer {
    pub fn push(&mut self, text: &JsonText) {
        self.inner.push_str(text.inner());
    }

    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    pub fn to_text(&self) -> JsonText {
        let json = format!("\"{}\"", self.inner);
        JsonText(RawValue::from_string(json).expect("JSON strings joined are one"))
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if !raw.get().starts_with('"') {
            return Err(D::Error::custom("expected a string"));
        }
        Self::from_boxed(raw).ok_or_else(|| D::Error::custom(HALF_A_PAIR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_join_without_being_decoded() {
        let texts = [
            JsonText::new("a\"b"),
            JsonText::new(""),
            JsonText::new("ü\u{0}"),
        ];
        assert_eq!(JsonText::join_lines(&texts).decode(), "a\"b\n\nü\u{0}");
        assert_eq!(JsonText::concat(&texts).decode(), "a\"bü\u{0}");
        assert_eq!(JsonText::concat(&[]).decode(), "");
    }

    #[test]
    fn numbers_become_characters_and_all_else_stays() {
        for (json, text) in [
            (r#"{"a":"b"}"#, r#"{"a":"b"}"#),
            (r#"{"\u0061":"\u0416\u0443\u043a"}"#, r#"{"a":"Жук"}"#),
            (r#"{"a":"\ud83d\ude00!"}"#, r#"{"a":"😀!"}"#),
            (r#"{"a":"\n\\u0061\"\u0041"}"#, r#"{"a":"\n\\u0061\"A"}"#),
            (
                r#"{"a":"\ud83d and \ude00"}"#,
                r#"{"a":"\ud83d and \ude00"}"#,
            ),
            // What is said twice, or with much white space, is sent and counts.
            (
                r#"{"\u0061":1,  "a":"x","a":1e5}"#,
                r#"{"a":1,  "a":"x","a":1e5}"#,
            ),
        ] {
            assert_eq!(with_characters(json), text, "{json}");
        }
    }

    #[test]
    fn half_a_surrogate_pair_is_no_text() {
        let read = |json: &str| serde_json::from_str::<JsonText>(json);
        assert!(read(r#""\ud83d\ude00""#).is_ok());
        assert!(read(r#""\ud83d""#).is_err());
        assert!(read(r#""\uDE00 x""#).is_err());
        assert!(read("5").is_err());
    }
}
