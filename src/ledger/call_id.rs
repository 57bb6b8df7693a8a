//! Call IDs: assigned by the gateway, increasing, and distinct from clients' request IDs.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// Milliseconds since 1970 and a counter within the millisecond, so that rows are appended in key order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

const COUNT_BITS: u32 = 19;
const PREFIX: &str = "call_";
/// Crockford's base 32: without letters that look like digits.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const CHARS: u32 = 13;

impl CallId {
    /// The lowest ID of a call that started at this time.
    pub(crate) fn first_of(ms: i64) -> Self {
        Self(u64::try_from(ms).unwrap_or(0) << COUNT_BITS)
    }

    /// When the call started, in milliseconds since 1970.
    pub(crate) fn started_ms(self) -> i64 {
        i64::try_from(self.0 >> COUNT_BITS).unwrap_or(i64::MAX)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        if digits.len() != CHARS as usize {
            return None;
        }
        let mut number: u64 = 0;
        for byte in digits.bytes() {
            let digit = ALPHABET.iter().position(|symbol| *symbol == byte)?;
            number = number
                .checked_mul(32)?
                .checked_add(u64::try_from(digit).ok()?)?;
        }
        Some(Self(number))
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        for place in (0..CHARS).rev() {
            let digit = (self.0 >> (5 * place)) & 31;
            let symbol = ALPHABET[usize::try_from(digit).unwrap_or(0)];
            fmt::Write::write_char(f, char::from(symbol))?;
        }
        Ok(())
    }
}

/// Generates increasing IDs, also if the clock stands still or goes back, continuing after the last process's.
pub(crate) struct CallIds(AtomicU64);

impl CallIds {
    pub(crate) fn after(last: Option<CallId>) -> Self {
        Self(AtomicU64::new(last.map_or(0, |last| last.0)))
    }

    /// Makes later IDs higher than this one.
    pub(crate) fn go_on_after(&self, id: CallId) {
        self.0.fetch_max(id.0, Ordering::Relaxed);
    }

    pub(crate) fn next(&self, now_ms: i64) -> CallId {
        let CallId(by_time) = CallId::first_of(now_ms);
        let following = |last: u64| (last + 1).max(by_time);
        let last = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
                Some(following(last))
            });
        CallId(following(last.unwrap_or_else(|last| last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_increase_also_if_the_clock_stands_or_goes_back() {
        let ids = CallIds::after(None);
        let made: Vec<_> = [5, 5, 4, 1_800_000_000_000, 7]
            .map(|now| ids.next(now))
            .into();
        assert!(made.is_sorted_by(|a, b| a < b), "{made:?}");
        let later = CallIds::after(made.last().copied());
        assert!(later.next(0) > made[4]);
    }

    #[test]
    fn a_displayed_id_can_be_parsed() {
        for number in [0, 1, 943_718_400_000_000_000, u64::MAX >> 1] {
            let shown = CallId(number).to_string();
            assert_eq!(CallId::parse(&shown), Some(CallId(number)), "{shown}");
        }
        for wrong in [
            "",
            "call_",
            "call_0",
            "use_0000000000000",
            "call_000000000000u",
            "call_zzzzzzzzzzzzz",
        ] {
            assert_eq!(CallId::parse(wrong), None, "{wrong}");
        }
    }
}
