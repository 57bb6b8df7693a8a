//! Lists of words of which only one thing is asked, read without keeping them.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

/// The forms in which an answer is wanted: an array of strings.
#[derive(Clone, Copy, Debug)]
pub struct Modalities {
    is_more_than_text: bool,
}

impl Modalities {
    pub fn is_more_than_text(self) -> bool {
        self.is_more_than_text
    }
}

/// Sequences at which an answer is to stop: a string or an array of strings.
#[derive(Clone, Copy, Debug)]
pub struct StopSequences {
    is_any: bool,
}

impl StopSequences {
    /// Whether one of them is not empty.
    pub fn is_any(self) -> bool {
        self.is_any
    }
}

impl<'de> Deserialize<'de> for Modalities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let any = AnyWord {
            expected: "an array of strings",
            takes_one: false,
            asked: |word| word != "text",
        };
        let is_more_than_text = deserializer.deserialize_any(any)?;
        Ok(Self { is_more_than_text })
    }
}

impl<'de> Deserialize<'de> for StopSequences {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let any = AnyWord {
            expected: "a string or an array of strings",
            takes_one: true,
            asked: |word| !word.is_empty(),
        };
        let is_any = deserializer.deserialize_any(any)?;
        Ok(Self { is_any })
    }
}

/// Whether it holds of any word.
struct AnyWord {
    expected: &'static str,
    /// A word may stand for a list of one.
    takes_one: bool,
    asked: fn(&str) -> bool,
}

impl<'de> Visitor<'de> for AnyWord {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<bool, E> {
        if !self.takes_one {
            return Err(E::invalid_type(serde::de::Unexpected::Str(word), &self));
        }
        Ok((self.asked)(word))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        let mut any = false;
        while let Some(word) = list.next_element::<Cow<'_, str>>()? {
            any |= (self.asked)(&word);
        }
        Ok(any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_of_another_kind_is_enough() {
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
