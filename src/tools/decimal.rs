//! Exact decimal numbers.
//!
//! JSON numbers are parsed from their text, because a price or an amount of wei would lose digits as a float.

use std::str::FromStr as _;

use alloy_primitives::U256;
use bigdecimal::{BigDecimal, RoundingMode, Zero as _, num_bigint::BigInt};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::value::RawValue;

/// 256 bits have 78 digits; a much longer text is no amount and would only cost time.
const MAX_CHARS: usize = 100;
/// Bounds the cost of arithmetic: `1e1000000` is short to write and expensive to compute with.
const MAX_EXPONENT: u32 = 100;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Decimal(BigDecimal);

impl Decimal {
    /// Reads `12`, `-0.5`, `.5` or `1.5e-7`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() > MAX_CHARS {
            return Err(format!("expected at most {MAX_CHARS} characters"));
        }
        let (digits, exponent) = match text.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, Some(exponent)),
            None => (text, None),
        };
        let unsigned = digits.strip_prefix('-').unwrap_or(digits);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !all_digits(whole) || !all_digits(fraction) || whole.len() + fraction.len() == 0 {
            return Err("expected a decimal number, e.g. `1.5`".into());
        }
        if let Some(exponent) = exponent {
            let size = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
            if !all_digits(size) || size.is_empty() {
                return Err("expected a decimal number, e.g. `1.5e-7`".into());
            }
            if !size.parse().is_ok_and(|size: u32| size <= MAX_EXPONENT) {
                return Err(format!(
                    "expected an exponent from -{MAX_EXPONENT} to {MAX_EXPONENT}"
                ));
            }
        }
        let number = BigDecimal::from_str(text);
        number.map(Self).map_err(|error| error.to_string())
    }

    /// Converts an amount in smallest units into whole coins, which have `decimals` decimals.
    pub(crate) fn of_units(units: U256, decimals: u8) -> Self {
        let units = BigInt::from_bytes_be(
            bigdecimal::num_bigint::Sign::Plus,
            &units.to_be_bytes::<32>(),
        );
        Self(BigDecimal::new(units, decimals.into()).normalized())
    }

    /// This number times ten to the power of `exponent`.
    pub(crate) fn shifted(&self, exponent: i64) -> Self {
        let (digits, scale) = self.0.as_bigint_and_scale();
        Self(BigDecimal::new(digits.into_owned(), scale - exponent).normalized())
    }

    pub(crate) fn is_integer(&self) -> bool {
        self.0.is_integer()
    }

    pub(crate) fn is_negative(&self) -> bool {
        self.0 < BigDecimal::zero()
    }

    /// Change from this number to `last` in percent, to four decimals; `None` if this number is zero.
    pub(crate) fn change_percent(&self, last: &Self) -> Option<Self> {
        if self.0.is_zero() {
            return None;
        }
        let change = (&last.0 - &self.0) * BigDecimal::from(100) / &self.0;
        let rounded = change.with_scale_round(4, RoundingMode::HalfEven);
        Some(Self(rounded.normalized()))
    }

    pub(crate) fn to_i64(&self) -> Option<i64> {
        bigdecimal::ToPrimitive::to_i64(&self.0)
    }

    /// All digits, without an exponent.
    pub(crate) fn plain(&self) -> String {
        self.0.to_plain_string()
    }
}

/// From a JSON number or from a string that holds one.
impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text = raw.get();
        let read = if text.starts_with('"') {
            let text: String = serde_json::from_str(text).map_err(D::Error::custom)?;
            Self::parse(&text)
        } else {
            Self::parse(text)
        };
        read.map_err(D::Error::custom)
    }
}

/// As a string, because readers may parse JSON numbers as floats.
impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.plain())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_survives() {
        for (json, plain) in [
            ("67187.3358936566", "67187.3358936566"),
            ("1.10", "1.10"),
            (
                "0.1234567890123456789012345678901234567",
                "0.1234567890123456789012345678901234567",
            ),
            ("1.2345e-7", "0.00000012345"),
            ("1.5E+3", "1500"),
            ("\"  12 \"", "12"),
            ("\".5\"", "0.5"),
            ("\"5.\"", "5"),
            ("-3", "-3"),
            ("1317802988326.25", "1317802988326.25"),
            (
                "115792089237316195423570985008687907853269984665640564039457584007913129639935",
                "115792089237316195423570985008687907853269984665640564039457584007913129639935",
            ),
        ] {
            let read: Decimal = serde_json::from_str(json).unwrap();
            assert_eq!(read.plain(), plain, "{json}");
            assert_eq!(
                serde_json::to_string(&read).unwrap(),
                format!("\"{plain}\"")
            );
        }
    }

    #[test]
    fn invalid_amounts_are_refused() {
        let long = format!("\"{}\"", "1".repeat(101));
        for json in [
            "\"\"",
            "\".\"",
            "\"-\"",
            "\"1,000\"",
            "\"1_000\"",
            "\"0x10\"",
            "\"1e\"",
            "\"1e+\"",
            "\"e5\"",
            "\"--1\"",
            "\"+1\"",
            "\"1e1000000\"",
            "1e101",
            "1e-101",
            "\"1e99999999999\"",
            "\"NaN\"",
            "\"inf\"",
            "\"١\"",
            "true",
            "[1]",
            "{}",
            &long,
        ] {
            assert!(serde_json::from_str::<Decimal>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn a_change_is_rounded_to_four_decimals() {
        for (first, last, change) in [
            ("3", "4", Some("33.3333")),
            ("100", "99", Some("-1")),
            ("0.00000001", "0.00000002", Some("100")),
            ("7", "7", Some("0")),
            ("0", "7", None),
        ] {
            let (first, last) = (
                Decimal::parse(first).unwrap(),
                Decimal::parse(last).unwrap(),
            );
            let found = first.change_percent(&last).map(|change| change.plain());
            assert_eq!(found.as_deref(), change, "{first:?} {last:?}");
        }
    }

    #[test]
    fn units_have_decimals() {
        for (units, decimals, plain) in [
            (U256::from(1_500_000_u32), 6, "1.5"),
            (U256::from(1), 18, "0.000000000000000001"),
            (U256::ZERO, 18, "0"),
            (U256::from(12_000), 0, "12000"),
        ] {
            assert_eq!(Decimal::of_units(units, decimals).plain(), plain);
        }
        let largest = Decimal::of_units(U256::MAX, 255).plain();
        assert!(
            largest.starts_with("0.000") && largest.ends_with("639935"),
            "{largest}"
        );
    }
}
