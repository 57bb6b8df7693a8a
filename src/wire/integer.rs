//! Integers in JSON, in any notation: `10`, `10.0` and `1e1` are equal.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, Unexpected, Visitor},
};
use serde_json::Value;

/// 2^53: up to here an `f64` represents every integer exactly.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// An integer of at least 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole(pub u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyNumber).map(Self)
    }
}

struct AnyNumber;

impl Visitor<'_> for AnyNumber {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of at least 0")
    }

    fn visit_u64<E>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        let unexpected = || E::invalid_value(Unexpected::Signed(number), &self);
        u64::try_from(number).map_err(|_| unexpected())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        let whole = whole(number).and_then(|number| u64::try_from(number).ok());
        whole.ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }
}

/// The value as an integer, in any notation.
pub(crate) fn read(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| whole(value.as_f64()?))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "it has no fraction and is in range"
)]
fn whole(number: f64) -> Option<i64> {
    let is_whole = number.fract() == 0.0 && number.abs() <= MAX_EXACT;
    is_whole.then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_fraction_is_whole() {
        let read = |json: &str| {
            serde_json::from_str::<Whole>(json)
                .map(|whole| whole.0)
                .ok()
        };
        for (json, number) in [
            ("10", Some(10)),
            ("10.0", Some(10)),
            ("1e2", Some(100)),
            ("1.5e1", Some(15)),
            ("-0", Some(0)),
            ("-0.0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("10.5", None),
            ("-1", None),
            ("-1.0", None),
            ("1e300", None),
            ("\"10\"", None),
            ("true", None),
            ("null", None),
            ("[1]", None),
        ] {
            assert_eq!(read(json), number, "{json}");
        }
        let integer = |json: &str| super::read(&serde_json::from_str(json).unwrap());
        assert_eq!(integer("-7.0"), Some(-7));
        assert_eq!(integer("9223372036854775807"), Some(i64::MAX));
        assert_eq!(integer("0.5"), None);
        assert_eq!(integer("\"5\""), None);
    }
}
