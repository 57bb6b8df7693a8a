//! Whether held-out labels confirm a fitted setting.

use serde::Serialize;

use super::{
    bench::{Bench, Case, Measured, Quality},
    number::count,
};
use crate::catalog::Router;

/// Number of standard errors above zero for a one-sided significance of 95 %.
const Z_95: f64 = 1.64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Confirmed,
    /// The fit found the current setting.
    Unchanged,
    TooLow,
    NoGain,
    NoBetterThanChance,
}

impl Verdict {
    /// Why the new setting is not confirmed; the text continues a sentence about the held-out half.
    pub(crate) fn objection(self) -> Option<&'static str> {
        match self {
            Self::Confirmed | Self::Unchanged => None,
            Self::TooLow => {
                Some("there its quality is below the required one and lower than before")
            }
            Self::NoGain => Some("there it is neither cheaper nor better than before"),
            Self::NoBetterThanChance => {
                Some("there it chooses no better than a random choice with the same shares")
            }
        }
    }
}

/// A setting, and the expected quality that it is used with.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub router: &'a Router,
    pub quality: &'a [Quality],
}

/// How far the quality on the held-out half may be below the goal: a fit that just reaches it on one half is often a
/// little below it on the other.
const TOLERANCE: f64 = 0.01;

impl Verdict {
    pub(crate) fn of(
        bench: &Bench,
        held_out: &[&Case],
        before: (&Router, Measured),
        after: (Setup<'_>, Measured),
        goal: f64,
    ) -> Self {
        let ((old, was), (setup, is)) = (before, after);
        if old == setup.router && was == is {
            return Self::Unchanged;
        }
        let chosen: Vec<usize> = held_out
            .iter()
            .map(|case| case.choice(setup.router, setup.quality))
            .collect();
        let picked = || held_out.iter().zip(&chosen);
        if is.quality < was.quality && is.quality < goal - TOLERANCE {
            return Self::TooLow;
        }
        if is.cost >= was.cost && is.quality <= was.quality {
            return Self::NoGain;
        }
        if is.cost <= was.cost && is.quality >= was.quality {
            return Self::Confirmed;
        }
        // Quality was traded for cost or the reverse. A random choice with the same shares, which ignores the prompt,
        // does that too, so the setting must be better than one.
        let shares: Vec<f64> = (0..bench.targets())
            .map(|target| {
                let times = chosen.iter().filter(|at| **at == target).count();
                count(times) / count(chosen.len().max(1))
            })
            .collect();
        // If all requests go to one target, there is no choice to test.
        let chooses = shares.iter().all(|share| *share < 1.0);
        let gains = picked().map(|(case, at)| {
            let random = case.scores.iter().zip(&shares);
            case.scores[*at] - random.map(|(score, share)| score * share).sum::<f64>()
        });
        if chooses && !is_significantly_positive(&gains.collect::<Vec<_>>()) {
            return Self::NoBetterThanChance;
        }
        Self::Confirmed
    }
}

fn is_significantly_positive(values: &[f64]) -> bool {
    let number = count(values.len().max(2));
    let mean = values.iter().sum::<f64>() / number;
    let squares = values.iter().map(|value| (value - mean) * (value - mean));
    let error = (squares.sum::<f64>() / (number - 1.0) / number).sqrt();
    mean > Z_95 * error + 1e-9
}
