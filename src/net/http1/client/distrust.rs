//! Remembers for a while that a provider sends bytes that belong to no request.
//!
//! One surplus byte shows that the provider, or a proxy before it, does not keep responses and requests in step. The
//! next one may arrive after a request was sent, when it cannot be distinguished from the response. So the connections
//! of this provider are used once each, until the time is over.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How long connections are not reused after surplus bytes.
pub(super) const DISTRUST: Duration = Duration::from_mins(10);

#[derive(Debug, Default)]
pub(super) struct Distrust {
    /// False while there is none, so that ordinary requests read no clock and take no lock.
    is_possible: AtomicBool,
    until: Mutex<Option<Instant>>,
}

impl Distrust {
    /// Begins, or begins again. Returns whether it was off.
    pub(super) fn begin(&self, now: Instant) -> bool {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let was_on = until.is_some_and(|until| now < until);
        *until = Some(now + DISTRUST);
        self.is_possible.store(true, Ordering::Release);
        !was_on
    }

    /// Whether the time since surplus bytes is not over; `now` is called only if there were any.
    pub(super) fn is_on(&self, now: impl FnOnce() -> Instant) -> bool {
        if !self.is_possible.load(Ordering::Acquire) {
            return false;
        }
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let is_on = until.is_some_and(|until| now() < until);
        if !is_on {
            *until = None;
            self.is_possible.store(false, Ordering::Release);
        }
        is_on
    }

    #[cfg(test)]
    pub(super) fn forget(&self) {
        *self.until.lock().unwrap() = None;
        self.is_possible.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_for_a_while_after_the_last_surplus() {
        let distrust = Distrust::default();
        assert!(!distrust.is_on(|| unreachable!("no clock is read")));
        let start = Instant::now();
        assert!(distrust.begin(start));
        assert!(distrust.is_on(|| start));
        assert!(!distrust.begin(start + DISTRUST / 2));
        assert!(distrust.is_on(|| start + DISTRUST));
        assert!(!distrust.is_on(|| start + DISTRUST * 3 / 2));
        assert!(!distrust.is_on(|| unreachable!("no clock is read")));
    }
}
