//! A JSON string in its escaped form, as it was received.

use std::borrow::Cow;

use memchr::{memchr, memmem};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::value::RawValue;

/// Error text for a JSON string with an unpaired surrogate: valid JSON, but not Unicode.
pub(crate) const LONE_SURROGATE: &str = "it has half of a surrogate pair (a `\\uD800` to `\\uDFFF` without its other half), \
    which is no character";

/// A JSON string that is forwarded without being unescaped and escaped again.
///
/// It can always be decoded: the constructors refuse strings with an unpaired surrogate.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct JsonText(Box<RawValue>);

impl JsonText {
    pub(crate) fn new(text: &str) -> Self {
        Self(serde_json::value::to_raw_value(text).expect("a string serialises"))
    }

    /// `None` if `raw` is not a string, or has an unpaired surrogate.
    pub(crate) fn from_raw(raw: &RawValue) -> Option<Self> {
        Self::from_boxed(raw.to_owned())
    }

    /// Like [`JsonText::from_raw`], without a copy.
    pub(crate) fn from_boxed(raw: Box<RawValue>) -> Option<Self> {
        let json = raw.get();
        if !json.starts_with('"') {
            return None;
        }
        // The JSON parser has checked everything but surrogates.
        let may_have_surrogates = memchr(b'\\', json.as_bytes()).is_some()
            && (json.contains("\\ud") || json.contains("\\uD"));
        if may_have_surrogates && serde_json::from_str::<String>(json).is_err() {
            return None;
        }
        Some(Self(raw))
    }

    /// Joins texts with line breaks.
    pub(crate) fn join_lines<'a>(texts: impl IntoIterator<Item = &'a JsonText>) -> Self {
        Self::join(texts, "\\n")
    }

    /// Joins texts without a separator.
    pub(crate) fn concat<'a>(texts: impl IntoIterator<Item = &'a JsonText>) -> Self {
        Self::join(texts, "")
    }

    /// `separator` is in escaped form.
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

    pub(crate) fn decode(&self) -> String {
        serde_json::from_str(self.0.get()).expect("checked by the constructors")
    }

    /// The decoded text; copied only if it contains an escape.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        let inner = self.inner();
        match memchr(b'\\', inner.as_bytes()) {
            None => Cow::Borrowed(inner),
            Some(_) => Cow::Owned(self.decode()),
        }
    }

    /// The JSON literal, quotes included.
    pub(crate) fn as_json(&self) -> &str {
        self.0.get()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inner().is_empty()
    }

    fn inner(&self) -> &str {
        let json = self.0.get();
        &json[1..json.len() - 1]
    }
}

/// Replaces `\uXXXX` escapes by their characters and leaves all else as it is. Used for counting tokens, so that the
/// count does not depend on how a text is escaped. One pass without a parsed tree, because the text may be as large as
/// a body.
pub(crate) fn unescape_unicode(json: &str) -> Cow<'_, str> {
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
            // Another escape is copied with the escaped character; an unpaired surrogate is copied as it is.
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

/// Decodes the `\uXXXX` escape, or pair of them, at the start of the text. Returns the character (`None` for an
/// unpaired surrogate) and the length of the escape.
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

/// Collects a text that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct TextBuffer {
    /// The text so far in escaped form, without quotes.
    inner: String,
}

impl TextBuffer {
    pub(crate) fn push(&mut self, text: &JsonText) {
        self.inner.push_str(text.inner());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    pub(crate) fn to_text(&self) -> JsonText {
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
        Self::from_boxed(raw).ok_or_else(|| D::Error::custom(LONE_SURROGATE))
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
    fn unicode_escapes_become_characters_and_all_else_stays() {
        for (json, text) in [
            (r#"{"a":"b"}"#, r#"{"a":"b"}"#),
            (r#"{"\u0061":"\u0416\u0443\u043a"}"#, r#"{"a":"Жук"}"#),
            (r#"{"a":"\ud83d\ude00!"}"#, r#"{"a":"😀!"}"#),
            (r#"{"a":"\n\\u0061\"\u0041"}"#, r#"{"a":"\n\\u0061\"A"}"#),
            (
                r#"{"a":"\ud83d and \ude00"}"#,
                r#"{"a":"\ud83d and \ude00"}"#,
            ),
            // Duplicate keys and white space are sent upstream too, so they count.
            (
                r#"{"\u0061":1,  "a":"x","a":1e5}"#,
                r#"{"a":1,  "a":"x","a":1e5}"#,
            ),
        ] {
            assert_eq!(unescape_unicode(json), text, "{json}");
        }
    }

    #[test]
    fn an_unpaired_surrogate_is_refused() {
        let read = |json: &str| serde_json::from_str::<JsonText>(json);
        assert!(read(r#""\ud83d\ude00""#).is_ok());
        assert!(read(r#""\ud83d""#).is_err());
        assert!(read(r#""\uDE00 x""#).is_err());
        assert!(read("5").is_err());
    }
}
