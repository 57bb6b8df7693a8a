//! What hybrids have chosen since the gateway was started, for the operator to see.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{base::money::NanoUsd, routing::Decision};

/// Expectations are counted by the hundredth.
const STEPS: usize = 101;

#[derive(Default)]
pub struct Tally(Mutex<BTreeMap<String, Chose>>);

/// What one hybrid has chosen.
#[derive(Clone, Default)]
pub struct Chose {
    /// By who answered and why.
    pub answers: BTreeMap<(String, &'static str), Tallied>,
    /// What was expected of each quality tier.
    quality: [Spread; 4],
}

#[derive(Clone, Copy, Default)]
pub struct Tallied {
    pub count: u64,
    /// Over always asking the dearest that could have answered.
    pub estimated_saving: NanoUsd,
}

impl Tallied {
    fn plus(self, other: Self) -> Self {
        let saving = self.estimated_saving.checked_add(other.estimated_saving);
        Self {
            count: self.count + other.count,
            estimated_saving: saving.unwrap_or(self.estimated_saving),
        }
    }
}

/// How often a number from 0 to 1 was which one.
#[derive(Clone)]
struct Spread([u64; STEPS]);

impl Default for Spread {
    fn default() -> Self {
        Self([0; STEPS])
    }
}

impl Spread {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number from 0 to 100"
    )]
    fn count(&mut self, number: f32) {
        self.0[(number.clamp(0.0, 1.0) * 100.0).round() as usize] += 1;
    }

    /// The number below or at which this share of them is.
    fn quantile(&self, percent: u64) -> f64 {
        let all: u64 = self.0.iter().sum();
        let mut left = (all * percent).div_ceil(100);
        let mut steps = (0_u8..).zip(&self.0);
        let at = steps.find(|(_, count)| {
            left = left.saturating_sub(**count);
            left == 0
        });
        at.map_or(0.0, |(step, _)| f64::from(step) / 100.0)
    }
}

impl Chose {
    pub fn total(&self) -> Tallied {
        let all = self.answers.values().copied();
        all.fold(Tallied::default(), Tallied::plus)
    }

    /// This quantile of what was expected of each quality tier, the weakest first.
    pub fn quality(&self, percent: u64) -> [f64; 4] {
        self.quality.each_ref().map(|tier| tier.quantile(percent))
    }
}

impl Tally {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Chose>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self, decision: &Decision) {
        let mut tally = self.lock();
        let hybrid = tally.entry(decision.hybrid.clone()).or_default();
        for (spread, quality) in hybrid.quality.iter_mut().zip(decision.quality) {
            spread.count(quality);
        }
        let key = (decision.chosen.clone(), decision.reason.as_str());
        let entry = hybrid.answers.entry(key).or_default();
        *entry = entry.plus(Tallied {
            count: 1,
            estimated_saving: decision.estimated_saving,
        });
    }

    pub fn look(&self) -> BTreeMap<String, Chose> {
        self.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_counted() {
        let mut spread = Spread::default();
        assert_eq!(spread.quantile(50).to_bits(), 0.0_f64.to_bits());
        for number in [0.1, 0.2, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 7.0] {
            spread.count(number);
        }
        let quantiles = [10, 30, 50, 90, 100].map(|percent| spread.quantile(percent));
        let expected = [0.1, 0.2, 0.4, 0.8, 1.0_f64];
        assert_eq!(quantiles.map(f64::to_bits), expected.map(f64::to_bits));
    }
}
