//! What the calls of the last minutes were: by model, upstream and outcome, and requests by status, for the console.
//!
//! Costs requests nothing: a job samples the counters of the metrics, and what was counted since the oldest sample is
//! what the last minutes were. In memory only.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::Metrics;

/// Seconds between two samples.
const EVERY: u64 = 10;
/// Number of samples that are kept: those of five minutes.
const KEPT: usize = 30;
/// Minutes that the counts are of.
pub(crate) const MINUTES: u64 = EVERY * KEPT as u64 / 60;

#[derive(Default)]
pub struct Breakdown(Mutex<Samples>);

#[derive(Default)]
struct Samples {
    /// The second of the last sample.
    at: Option<u64>,
    /// The oldest first.
    taken: VecDeque<Counts>,
}

/// Counters, or what they have counted in a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// By model, upstream and outcome.
    pub calls: BTreeMap<(String, String, &'static str), u64>,
    /// Requests of the API by status.
    pub statuses: BTreeMap<u16, u64>,
}

impl Breakdown {
    /// Takes a sample if one is due in the second with this number.
    pub(crate) fn tick(&self, second: u64, metrics: &Metrics) {
        let mut samples = self.samples();
        if samples.at.is_some_and(|at| second < at + EVERY) {
            return;
        }
        samples.at = Some(second);
        samples.taken.push_back(metrics.counts());
        if samples.taken.len() > KEPT {
            samples.taken.pop_front();
        }
    }

    /// What was counted in the last minutes, or since the start if that was later.
    pub(crate) fn last_minutes(&self, metrics: &Metrics) -> Counts {
        let now = metrics.counts();
        let samples = self.samples();
        match samples.taken.front() {
            Some(oldest) => now.since(oldest),
            None => now,
        }
    }

    fn samples(&self) -> MutexGuard<'_, Samples> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn since(self, before: &Self) -> Self {
        let calls = self.calls.into_iter().map(|(labels, count)| {
            let earlier = before.calls.get(&labels).copied().unwrap_or(0);
            (labels, count.saturating_sub(earlier))
        });
        let statuses = self.statuses.into_iter().map(|(status, count)| {
            let earlier = before.statuses.get(&status).copied().unwrap_or(0);
            (status, count.saturating_sub(earlier))
        });
        Self {
            calls: calls.filter(|(_, count)| *count > 0).collect(),
            statuses: statuses.filter(|(_, count)| *count > 0).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(calls: u64, status: u64) -> Counts {
        let labels = ("m".to_owned(), "u".to_owned(), "answered");
        Counts {
            calls: [(labels, calls)].into(),
            statuses: [(200, status), (404, 1)].into(),
        }
    }

    #[test]
    fn what_was_counted_before_is_left_out() {
        let since = counts(7, 9).since(&counts(4, 9));
        assert_eq!(since.calls.values().collect::<Vec<_>>(), [&3]);
        assert!(since.statuses.is_empty(), "{since:?}");
        assert_eq!(counts(2, 1).since(&Counts::default()), counts(2, 1));
    }
}
