//! The window of one account with one model: an exact log of the admissions of the last 60 seconds.
//!
//! A request has one entry and each of its further steps another. Refused requests leave none, so the ceilings bound
//! the number of entries. Times are milliseconds of a clock that never runs backwards.

use std::collections::VecDeque;

use crate::base::rate::{Ceilings, Limit, Refusal, WINDOW_MS, WindowOf};

#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Oldest first, with rising numbers.
    entries: VecDeque<Entry>,
    /// How many of the entries are of [`Kind::Request`].
    requests: usize,
    /// The sum of the entries' tokens.
    tokens: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    at_ms: u64,
    /// Reserved, or used once the entry is settled.
    tokens: u64,
    kind: Kind,
}

/// What an entry stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    /// A further step of a request that has its own entry: only the tokens count.
    Step,
}

impl Window {
    /// Adds an entry with `need` reserved tokens, or refuses it and changes nothing.
    pub(crate) fn admit(
        &mut self,
        kind: Kind,
        now_ms: u64,
        number: u64,
        need: u64,
        ceilings: Ceilings,
    ) -> Result<(), Refusal> {
        self.expire(now_ms);
        let requests_full = kind == Kind::Request && self.requests >= ceilings.requests as usize;
        let tokens_full = self.tokens + need > u64::from(ceilings.tokens);
        let limit = match (requests_full, tokens_full) {
            (true, _) => Limit::Requests,
            (false, true) => Limit::Tokens,
            (false, false) => {
                self.restore(kind, now_ms, number, need);
                return Ok(());
            }
        };
        let used = u32::try_from(self.requests).unwrap_or(u32::MAX);
        let tokens = u32::try_from(self.tokens).unwrap_or(u32::MAX);
        Err(Refusal {
            of: WindowOf::Account,
            limit,
            ceilings,
            requests_left: ceilings.requests.saturating_sub(used),
            tokens_left: ceilings.tokens.saturating_sub(tokens),
            wait_ms: self.wait(kind, now_ms, need, ceilings),
        })
    }

    /// Adds an entry without checking the ceilings. It must not be older than the latest one.
    pub(crate) fn restore(&mut self, kind: Kind, at_ms: u64, number: u64, tokens: u64) {
        self.tokens += tokens;
        self.requests += usize::from(kind == Kind::Request);
        self.entries.push_back(Entry {
            number,
            at_ms,
            tokens,
            kind,
        });
    }

    /// Replaces an entry's reserved tokens by those that were used; its time does not change.
    ///
    /// Does nothing if the entry has already left the window.
    pub(crate) fn settle(&mut self, number: u64, tokens: u64) {
        if let Some(at) = self.position(number) {
            let entry = &mut self.entries[at];
            self.tokens = self.tokens - entry.tokens + tokens;
            entry.tokens = tokens;
        }
    }

    /// Removes an entry, as if it had never been admitted.
    pub(crate) fn cancel(&mut self, number: u64) {
        if let Some(entry) = self.position(number).and_then(|at| self.entries.remove(at)) {
            self.tokens -= entry.tokens;
            self.requests -= entry.requests();
        }
    }

    #[cfg(test)]
    pub(crate) fn requests(&self) -> usize {
        self.requests
    }

    pub(crate) fn is_empty(&mut self, now_ms: u64) -> bool {
        self.expire(now_ms);
        self.entries.is_empty()
    }

    /// Removes the entries that have left the window.
    fn expire(&mut self, now_ms: u64) {
        while let Some(oldest) = self.entries.front() {
            if now_ms.saturating_sub(oldest.at_ms) < WINDOW_MS {
                break;
            }
            self.tokens -= oldest.tokens;
            self.requests -= oldest.requests();
            self.entries.pop_front();
        }
    }

    /// Milliseconds until enough of the oldest entries have left the window; `None` if it can never fit.
    fn wait(&self, kind: Kind, now_ms: u64, need: u64, ceilings: Ceilings) -> Option<u64> {
        if ceilings.requests == 0 || need > u64::from(ceilings.tokens) {
            return None;
        }
        let (mut count, mut tokens, mut wait) = (self.requests, self.tokens, 0);
        for entry in &self.entries {
            let counted = kind == Kind::Step || count < ceilings.requests as usize;
            if counted && tokens + need <= u64::from(ceilings.tokens) {
                break;
            }
            count -= entry.requests();
            tokens -= entry.tokens;
            wait = (entry.at_ms + WINDOW_MS).saturating_sub(now_ms);
        }
        Some(wait)
    }

    /// The index of the entry with this number.
    fn position(&self, number: u64) -> Option<usize> {
        // Numbers rise, so an entry is no further from either end than the difference of their numbers. That narrows
        // the binary search; most lookups are for recent entries, which are still in the processor's cache.
        let last = self.entries.len().checked_sub(1)?;
        let from_front = number.checked_sub(self.entries[0].number)?;
        let from_back = self.entries[last].number.checked_sub(number)?;
        let in_reach = |apart: u64| usize::try_from(apart).unwrap_or(last).min(last);
        let (mut low, mut high) = (last - in_reach(from_back), in_reach(from_front));
        while low < high {
            let middle = low.midpoint(high);
            if self.entries[middle].number < number {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (self.entries[low].number == number).then_some(low)
    }
}

impl Entry {
    fn requests(&self) -> usize {
        usize::from(self.kind == Kind::Request)
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind::*, *};

    const TWO: Ceilings = Ceilings {
        requests: 2,
        tokens: 100,
    };

    #[test]
    fn the_window_slides_over_sixty_seconds() {
        let mut window = Window::default();
        window.admit(Request, 0, 1, 10, TWO).unwrap();
        window.admit(Request, 30_000, 2, 10, TWO).unwrap();
        let refusal = window.admit(Request, 59_999, 3, 10, TWO).unwrap_err();
        assert_eq!((refusal.limit, refusal.wait_ms), (Limit::Requests, Some(1)));
        window.admit(Request, 60_000, 3, 10, TWO).unwrap();
        let refusal = window.admit(Request, 60_000, 4, 10, TWO).unwrap_err();
        assert_eq!(refusal.wait_ms, Some(30_000));
    }

    #[test]
    fn usage_replaces_the_reservation() {
        let mut window = Window::default();
        window.admit(Request, 0, 1, 90, TWO).unwrap();
        let refusal = window.admit(Request, 1, 2, 20, TWO).unwrap_err();
        assert_eq!((refusal.limit, refusal.tokens_left), (Limit::Tokens, 10));
        window.settle(1, 50);
        window.admit(Request, 2, 2, 50, TWO).unwrap();
        window.settle(1, 500);
        window.cancel(2);
        let refusal = window.admit(Request, 3, 3, 1, TWO).unwrap_err();
        assert_eq!((refusal.limit, refusal.tokens_left), (Limit::Tokens, 0));
        assert_eq!(refusal.requests_left, 1);
    }

    #[test]
    fn entries_are_found_by_their_number() {
        const MANY: Ceilings = Ceilings {
            requests: 100,
            tokens: 10_000,
        };
        let mut window = Window::default();
        let numbers = [3, 4, 9, 10, 11, 50, 51, 1_000, 1_001, 1_003];
        for number in numbers {
            window.admit(Request, 0, number, number, MANY).unwrap();
        }
        for number in 0..1_010 {
            let at = numbers.iter().position(|known| *known == number);
            assert_eq!(window.position(number), at, "{number}");
        }
        window.cancel(10);
        assert_eq!(window.position(10), None);
        assert_eq!(window.position(11), Some(3));
        assert_eq!(Window::default().position(0), None);
    }

    #[test]
    fn a_step_counts_for_tokens_and_not_for_requests() {
        let mut window = Window::default();
        window.admit(Request, 0, 1, 10, TWO).unwrap();
        window.admit(Request, 0, 2, 10, TWO).unwrap();
        window.admit(Step, 10_000, 3, 70, TWO).unwrap();
        let refusal = window.admit(Step, 10_000, 4, 11, TWO).unwrap_err();
        assert_eq!(
            (refusal.limit, refusal.wait_ms),
            (Limit::Tokens, Some(50_000))
        );
        assert_eq!((refusal.requests_left, refusal.tokens_left), (0, 10));
        let refusal = window.admit(Request, 10_000, 4, 1, TWO).unwrap_err();
        assert_eq!(refusal.limit, Limit::Requests);
        window.admit(Request, 60_000, 4, 30, TWO).unwrap();
        assert_eq!(
            window.requests(),
            1,
            "the first two requests have left the window"
        );
        let refusal = window.admit(Step, 60_000, 5, 71, TWO).unwrap_err();
        assert_eq!(
            refusal.wait_ms,
            Some(60_000),
            "both entries must leave the window first"
        );
    }

    #[test]
    fn a_request_larger_than_the_ceiling_never_fits() {
        let refusal = Window::default()
            .admit(Request, 0, 1, 101, TWO)
            .unwrap_err();
        assert_eq!((refusal.limit, refusal.wait_ms), (Limit::Tokens, None));
    }
}
