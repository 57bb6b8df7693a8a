//! Lists of strings of which only one property is needed, parsed without storing them.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

/// The `modalities` field: the forms of output that the caller wants, an array of strings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modalities {
    is_more_than_text: bool,
}

impl Modalities {
    pub(crate) fn is_more_than_text(self) -> bool {
        self.is_more_than_text
    }
}

/// The `stop` field: sequences at which the output ends, a string or an array of strings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopSequences {
    is_any: bool,
}

impl StopSequences {
    /// Whether at least one of them is not empty.
    pub(crate) fn is_any(self) -> bool {
        self.is_any
    }
}

impl<'de> Deserialize<'de> for Modalities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let any = AnyString {
            expected: "an array of strings",
            accepts_single: false,
            predicate: |text| text != "text",
        };
        let is_more_than_text = deserializer.deserialize_any(any)?;
        Ok(Self { is_more_than_text })
    }
}

impl<'de> Deserialize<'de> for StopSequences {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let any = AnyString {
            expected: "a string or an array of strings",
            accepts_single: true,
            predicate: |text| !text.is_empty(),
        };
        let is_any = deserializer.deserialize_any(any)?;
        Ok(Self { is_any })
    }
}

/// Deserializes to whether the predicate holds for any of the strings.
struct AnyString {
    expected: &'static str,
    /// Whether a single string is accepted in place of a list.
    accepts_single: bool,
    predicate: fn(&str) -> bool,
}

impl<'de> Visitor<'de> for AnyString {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<bool, E> {
        if !self.accepts_single {
            return Err(E::invalid_type(serde::de::Unexpected::Str(text), &self));
        }
        Ok((self.predicate)(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        let mut any = false;
        while let Some(text) = list.next_element::<Cow<'_, str>>()? {
            any |= (self.predicate)(&text);
        }
        Ok(any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_matching_string_is_enough() {
        let more =
            |json| serde_json::from_str::<Modalities>(json).map(Modalities::is_more_than_text);
        for (json, expected) in [
            (r#"["text"]"#, false),
            ("[]", false),
            (r#"["text","audio"]"#, true),
            (r#"["image"]"#, true),
        ] {
            assert_eq!(more(json).unwrap(), expected, "{json}");
        }
        for json in [r#""audio""#, "[1]", "{}", "5"] {
            assert!(more(json).is_err(), "{json}");
        }
        let any = |json| serde_json::from_str::<StopSequences>(json).map(StopSequences::is_any);
        for (json, expected) in [
            (r#""""#, false),
            (r#""end""#, true),
            (r#"["",""]"#, false),
            (r#"["","e\n"]"#, true),
        ] {
            assert_eq!(any(json).unwrap(), expected, "{json}");
        }
        for json in ["5", "[[]]", "{}"] {
            assert!(any(json).is_err(), "{json}");
        }
    }
}
