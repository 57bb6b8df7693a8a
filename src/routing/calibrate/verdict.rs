//! Whether labels that a setting was not fitted to bear it out.

use serde::Serialize;

use super::{
    bench::{Bench, Case, Measured, Quality},
    number::count,
};
use crate::catalog::Router;

/// So many standard errors from nothing is more than luck, nineteen times in twenty.
const SURE: f64 = 1.64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Confirmed,
    /// The fit found what there is.
    Unchanged,
    TooLow,
    NoGain,
    NoBetterThanChance,
}

impl Verdict {
    /// What speaks against the new setting.
    pub fn objection(self) -> Option<&'static str> {
        match self {
            Self::Confirmed | Self::Unchanged => None,
            Self::TooLow => {
                Some("there its quality is below what was asked, and lower than before")
            }
            Self::NoGain => Some("there it is neither cheaper nor better than before"),
            Self::NoBetterThanChance => {
                Some("there it chooses no better than a lot drawn with the same odds")
            }
        }
    }
}

/// A setting, and what the scorer expects when it is used.
#[derive(Clone, Copy)]
pub struct Way<'a> {
    pub router: &'a Router,
    pub quality: &'a [Quality],
}

/// A fit that just reaches a goal on one half falls a little short of it on the other.
const TOLERANCE: f64 = 0.01;

impl Verdict {
    pub fn of(
        bench: &Bench,
        held_out: &[&Case],
        before: (&Router, Measured),
        after: (Way<'_>, Measured),
        goal: f64,
    ) -> Self {
        let ((old, was), (way, is)) = (before, after);
        if old == way.router && was == is {
            return Self::Unchanged;
        }
        let chosen: Vec<usize> = held_out
            .iter()
            .map(|case| case.choice(way.router, way.quality))
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
        // One was given for the other, as a lot between two targets would do it: with the same odds
        // and no look at the prompt. Choosing has to be better than that.
        let odds: Vec<f64> = (0..bench.targets())
            .map(|target| {
                let times = chosen.iter().filter(|at| **at == target).count();
                count(times) / count(chosen.len().max(1))
            })
            .collect();
        // Where all goes to one target there is nothing to choose badly.
        let chooses = odds.iter().all(|odds| *odds < 1.0);
        let gains = picked().map(|(case, at)| {
            let drawn = case.scores.iter().zip(&odds);
            case.scores[*at] - drawn.map(|(score, odds)| score * odds).sum::<f64>()
        });
        if chooses && !surely_above_nothing(&gains.collect::<Vec<_>>()) {
            return Self::NoBetterThanChance;
        }
        Self::Confirmed
    }
}

fn surely_above_nothing(values: &[f64]) -> bool {
    let number = count(values.len().max(2));
    let mean = values.iter().sum::<f64>() / number;
    let squares = values.iter().map(|value| (value - mean) * (value - mean));
    let error = (squares.sum::<f64>() / (number - 1.0) / number).sqrt();
    mean > SURE * error + 1e-9
}
