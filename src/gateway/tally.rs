//! Counts of the hybrids' choices since the gateway was started, for the operator. In memory only.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{base::money::NanoUsd, routing::Decision};

/// Number of histogram buckets: expected qualities are counted in hundredths from 0 to 1.
const BUCKETS: usize = 101;

/// The tally of each hybrid, by its model ID.
#[derive(Default)]
pub struct Tally(Mutex<BTreeMap<String, HybridTally>>);

/// The choices of one hybrid.
#[derive(Clone, Default)]
pub(crate) struct HybridTally {
    /// Choices by the chosen model and the reason.
    pub choices: BTreeMap<(String, &'static str), ChoiceTally>,
    /// Quality that the scorer expected of each quality tier.
    quality: [Histogram; 4],
}

#[derive(Clone, Copy, Default)]
pub(crate) struct ChoiceTally {
    pub count: u64,
    /// Estimated saving compared with always choosing the most expensive target that fits.
    pub estimated_saving: NanoUsd,
}

impl ChoiceTally {
    fn plus(self, other: Self) -> Self {
        let saving = self.estimated_saving.checked_add(other.estimated_saving);
        Self {
            count: self.count + other.count,
            estimated_saving: saving.unwrap_or(self.estimated_saving),
        }
    }
}

/// Histogram of numbers from 0 to 1.
#[derive(Clone)]
struct Histogram([u64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Histogram {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number from 0 to 100"
    )]
    fn count(&mut self, number: f32) {
        self.0[(number.clamp(0.0, 1.0) * 100.0).round() as usize] += 1;
    }

    /// Returns the number that `percent` percent of all counted numbers do not exceed.
    fn quantile(&self, percent: u64) -> f64 {
        let all: u64 = self.0.iter().sum();
        let mut remaining = (all * percent).div_ceil(100);
        let mut buckets = (0_u8..).zip(&self.0);
        let found = buckets.find(|(_, count)| {
            remaining = remaining.saturating_sub(**count);
            remaining == 0
        });
        found.map_or(0.0, |(bucket, _)| f64::from(bucket) / 100.0)
    }
}

impl HybridTally {
    pub(crate) fn total(&self) -> ChoiceTally {
        let all = self.choices.values().copied();
        all.fold(ChoiceTally::default(), ChoiceTally::plus)
    }

    /// Returns a quantile of the quality that was expected of each quality tier, the weakest first.
    pub(crate) fn quality(&self, percent: u64) -> [f64; 4] {
        self.quality.each_ref().map(|tier| tier.quantile(percent))
    }
}

impl Tally {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, HybridTally>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self, decision: &Decision) {
        let mut tally = self.lock();
        let hybrid = tally.entry(decision.hybrid.clone()).or_default();
        for (histogram, quality) in hybrid.quality.iter_mut().zip(decision.quality) {
            histogram.count(quality);
        }
        let key = (decision.chosen.clone(), decision.reason.as_str());
        let entry = hybrid.choices.entry(key).or_default();
        *entry = entry.plus(ChoiceTally {
            count: 1,
            estimated_saving: decision.estimated_saving,
        });
    }

    /// Returns a copy of the tallies of all hybrids.
    pub(crate) fn snapshot(&self) -> BTreeMap<String, HybridTally> {
        self.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_counted() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(50).to_bits(), 0.0_f64.to_bits());
        for number in [0.1, 0.2, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 7.0] {
            histogram.count(number);
        }
        let quantiles = [10, 30, 50, 90, 100].map(|percent| histogram.quantile(percent));
        let expected = [0.1, 0.2, 0.4, 0.8, 1.0_f64];
        assert_eq!(quantiles.map(f64::to_bits), expected.map(f64::to_bits));
    }
}
