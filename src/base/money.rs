//! Money as integers: amounts of accounts and prices of tokens.
//!
//! There is no floating point, because a ledger must add up to the last unit and a price must print as it was written.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An amount in billionths of a US dollar.
///
/// Signed, because a call can cost more than was held for it. The range is about nine billion
/// dollars either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NanoUsd(i64);

impl NanoUsd {
    const PER_DOLLAR: i64 = 1_000_000_000;
    const PER_CENT: i64 = Self::PER_DOLLAR / 100;

    pub const fn new(nanos: i64) -> Self {
        Self(nanos)
    }

    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Reads a decimal amount in dollars, e.g. `10.00`; at most nine decimals.
    pub fn parse(text: &str) -> Option<Self> {
        decimal(text, 9).map(Self)
    }

    /// An amount in cents; `None` if it does not fit.
    pub fn from_cents(cents: i64) -> Option<Self> {
        cents.checked_mul(Self::PER_CENT).map(Self)
    }

    /// The amount in cents; `None` if it is not a whole number of cents.
    pub(crate) fn whole_cents(self) -> Option<i64> {
        (self.0 % Self::PER_CENT == 0).then_some(self.0 / Self::PER_CENT)
    }

    pub(crate) fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }
}

impl NanoUsd {
    /// Formats without trailing zeros: `0.01`. For prices and fees; amounts are shown with six decimals.
    pub(crate) fn shortest(self) -> String {
        let text = self.to_string();
        let text = text.trim_end_matches('0').trim_end_matches('.');
        if text.is_empty() { "0" } else { text }.to_owned()
    }
}

impl fmt::Display for NanoUsd {
    /// Formats with six decimals, or up to nine if they are needed: `0.004200`, `0.004200001`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        let per_dollar = Self::PER_DOLLAR.unsigned_abs();
        let decimals = format!("{:09}", nanos % per_dollar);
        let shown = decimals.trim_end_matches('0').len().max(6);
        write!(f, "{sign}{}.{}", nanos / per_dollar, &decimals[..shown])
    }
}

impl serde::Serialize for NanoUsd {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The price of one token in trillionths of a US dollar; serialized as that number.
///
/// Catalogs are written in dollars per million tokens with up to six decimals, which is exactly
/// this unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenPrice(i64);

impl TokenPrice {
    /// Trillionths of a US dollar.
    pub(crate) const fn picos(self) -> i64 {
        self.0
    }

    pub(crate) const fn from_picos(picos: i64) -> Self {
        Self(picos)
    }

    /// Reads dollars per million tokens, e.g. `0.14`; at most six decimals.
    pub(crate) fn parse_per_million(text: &str) -> Option<Self> {
        decimal(text, 6).map(Self)
    }
}

impl fmt::Display for TokenPrice {
    /// Formats as dollars per token, without trailing zeros: `0.00000014`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pico_per_dollar = 1_000_000_000_000;
        let decimals = format!("{:012}", self.0 % pico_per_dollar);
        let decimals = decimals.trim_end_matches('0');
        let point = if decimals.is_empty() { "" } else { "." };
        write!(f, "{}{point}{decimals}", self.0 / pico_per_dollar)
    }
}

/// An exact amount in trillionths of a US dollar, for sums that are not rounded yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PicoUsd(i128);

impl PicoUsd {
    /// Rounds up to the next billionth. A sum is rounded only once, when it is charged.
    pub(crate) fn rounded_up(self) -> NanoUsd {
        let nanos = self.0.saturating_add(999).div_euclid(1_000);
        NanoUsd(i64::try_from(nanos).unwrap_or(i64::MAX))
    }
}

impl From<NanoUsd> for PicoUsd {
    fn from(amount: NanoUsd) -> Self {
        Self(i128::from(amount.0) * 1_000)
    }
}

impl std::ops::Add for PicoUsd {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::iter::Sum for PicoUsd {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), |sum, amount| sum + amount)
    }
}

/// The exact cost of tokens at their prices.
pub(crate) fn exact(parts: &[(u64, TokenPrice)]) -> PicoUsd {
    let each = parts
        .iter()
        .map(|(tokens, price)| PicoUsd(i128::from(*tokens) * i128::from(price.0)));
    each.sum()
}

/// Parses a plain, non-negative decimal number into an integer with `places` decimals.
fn decimal(text: &str, places: usize) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let unfinished = whole.is_empty() || text.ends_with('.');
    if unfinished || !digits(whole) || !digits(fraction) || fraction.len() > places {
        return None;
    }
    format!("{whole}{fraction:0<places$}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_shown_exactly() {
        for (text, nanos, shown) in [
            ("10.00", 10_000_000_000, "10.000000"),
            ("0.0042", 4_200_000, "0.004200"),
            ("0.000000001", 1, "0.000000001"),
            ("7", 7_000_000_000, "7.000000"),
        ] {
            let amount = NanoUsd::parse(text).unwrap();
            assert_eq!(amount, NanoUsd::new(nanos), "{text}");
            assert_eq!(amount.to_string(), shown, "{text}");
        }
        assert_eq!(NanoUsd::new(-1_500_000_000).to_string(), "-1.500000");
    }

    #[test]
    fn only_whole_cents_are_converted() {
        for (text, cents) in [
            ("25", Some(2_500)),
            ("0.01", Some(1)),
            ("19.99", Some(1_999)),
            ("0.001", None),
            ("19.990000001", None),
        ] {
            let amount = NanoUsd::parse(text).unwrap();
            assert_eq!(amount.whole_cents(), cents, "{text}");
            if let Some(cents) = cents {
                assert_eq!(NanoUsd::from_cents(cents), Some(amount), "{text}");
            }
        }
        assert_eq!(NanoUsd::from_cents(i64::MAX), None);
    }

    #[test]
    fn texts_that_are_no_plain_decimals_are_refused() {
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "1,0",
            "NaN",
            "0.0000000001",
            "99999999999",
        ] {
            assert_eq!(NanoUsd::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_cost_is_exact_and_rounded_up_once() {
        let price = |text| TokenPrice::parse_per_million(text).unwrap();
        for (parts, nanos) in [
            (vec![(0, price("9"))], 0),
            (vec![(1, price("0.14"))], 140),
            (vec![(1, price("0.000001"))], 1),
            (vec![(1, price("0.000001")), (1, price("0.000001"))], 1),
            (
                vec![(1_000_000, price("2.00")), (1_000_000, price("9.00"))],
                11_000_000_000,
            ),
            (vec![(u64::MAX, price("36"))], i64::MAX),
        ] {
            assert_eq!(exact(&parts).rounded_up(), NanoUsd::new(nanos), "{parts:?}");
        }
    }

    #[test]
    fn a_price_per_million_prints_per_token() {
        for (per_million, per_token) in [
            ("2.00", "0.000002"),
            ("0.14", "0.00000014"),
            ("36", "0.000036"),
            ("0", "0"),
            ("0.000001", "0.000000000001"),
        ] {
            let price = TokenPrice::parse_per_million(per_million).unwrap();
            assert_eq!(price.to_string(), per_token, "{per_million}");
        }
    }
}
