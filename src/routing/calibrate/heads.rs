//! Refits the quality heads of the scorer to the operator's models, by a linear function per tier.
//!
//! A head is a weighted sum of features, so a linear function of it is a head again: the weights times the slope, and
//! the offset in the weight of the base, a feature that is always 1. The functions are fitted to the sums before they
//! are clamped to 0..=1.

use serde::Serialize;

use super::{
    super::scorer::{HEADS, Scorer, TIERS, Weights},
    labels::Label,
    number::{count, four_places},
};
use crate::catalog::Catalog;

/// Regularisation of the offset, in labels: the squared ratio of the standard deviation of a label (.45) to that of the
/// tiers' offsets (.2).
const OFFSET_PRIOR: f64 = 5.0;
/// Regularisation of the slope, whose standard deviation around 1 is about .5.
const SLOPE_PRIOR: f64 = 0.8;
const BINS: usize = 10;

/// The score of a model on one prompt, and the quality expected of its tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    /// Counted from 0.
    pub tier: usize,
    /// Before clamping to 0..=1.
    pub expected: f64,
    pub score: f64,
}

/// The linear function that is applied to the sums of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Line {
    #[serde(serialize_with = "four_places")]
    pub scale: f64,
    #[serde(serialize_with = "four_places")]
    pub offset: f64,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            scale: 1.0,
            offset: 0.0,
        }
    }
}

pub(crate) type Lines = [Line; TIERS];

/// The error of the expected quality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Error {
    /// Root mean square of the differences between expected quality and score.
    #[serde(serialize_with = "four_places")]
    pub rms: f64,
    /// Calibration error: the mean difference between mean score and mean expectation, over bins of similar
    /// expectation.
    #[serde(serialize_with = "four_places")]
    pub calibration: f64,
}

/// The points of each label.
pub(crate) fn points(labels: &[Label], catalog: &Catalog, scorer: &Scorer) -> Vec<Vec<Point>> {
    let of = |label: &Label| {
        if Scorer::is_courtesy(&label.prompt) {
            return Vec::new(); // courtesies are scored by a rule
        }
        let mut sums = [0.0; TIERS];
        for term in scorer.explain(&label.prompt) {
            for (sum, part) in sums.iter_mut().zip(term.quality) {
                *sum += f64::from(part);
            }
        }
        let points = label.scores.iter().filter_map(|(id, score)| {
            let tier = usize::from(catalog.find(id)?.quality_tier.clamp(1, 4)) - 1;
            Some(Point {
                tier,
                expected: sums[tier],
                score: *score,
            })
        });
        points.collect()
    };
    labels.iter().map(of).collect()
}

/// Least squares with a prior towards no change, which weighs less the more labels there are.
pub(crate) fn fit(points: &[Point]) -> Lines {
    let mut lines = Lines::default();
    for (tier, line) in lines.iter_mut().enumerate() {
        let here = || points.iter().filter(|point| point.tier == tier);
        let number = count(here().count());
        if number < 1.0 {
            continue;
        }
        let middle = here().map(|point| point.expected).sum::<f64>() / number;
        let shift = here()
            .map(|point| point.score - point.expected)
            .sum::<f64>();
        let (mut spread, mut covariance) = (0.0, 0.0);
        for point in here() {
            let deviation = point.expected - middle;
            spread += deviation * deviation;
            covariance += deviation * (point.score - point.expected);
        }
        // The slope of the result is at least 0, so that a harder prompt never looks easier.
        let slope = (covariance / (spread + SLOPE_PRIOR)).max(-1.0);
        *line = Line {
            scale: 1.0 + slope,
            offset: shift / (number + OFFSET_PRIOR) - slope * middle,
        };
    }
    lines
}

/// The error of the expected quality after applying the linear functions.
pub(crate) fn error(points: &[Point], lines: &Lines) -> Error {
    let mut bins = [(0.0, 0.0); BINS];
    let mut squares = 0.0;
    for point in points {
        let line = lines[point.tier];
        let expected = (point.expected * line.scale + line.offset).clamp(0.0, 1.0);
        squares += (expected - point.score) * (expected - point.score);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number from 0 to 10"
        )]
        let bin = ((expected * count(BINS)) as usize).min(BINS - 1);
        bins[bin].0 += expected;
        bins[bin].1 += point.score;
    }
    let number = count(points.len().max(1));
    let differences = bins
        .iter()
        .map(|(expected, score)| (expected - score).abs());
    Error {
        rms: (squares / number).sqrt(),
        calibration: differences.sum::<f64>() / number,
    }
}

/// The weights with the linear functions applied.
pub(crate) fn apply(weights: &Weights, lines: &Lines) -> Result<Weights, String> {
    let mut weights = weights.clone();
    let base = (1.0 - f64::from(weights.hand_middle[0])) * f64::from(weights.hand_scale[0]);
    if base.abs() < 1e-6 {
        return Err("these weights have no base feature for an offset".into());
    }
    for (head, line) in lines.iter().enumerate() {
        #[expect(clippy::cast_possible_truncation, reason = "weights are f32")]
        let scaled = |weight: &mut f32| *weight = (f64::from(*weight) * line.scale) as f32;
        scaled(&mut weights.gram_units[head]);
        let dense = weights.hand.chunks_exact_mut(HEADS);
        let dense = dense.chain(weights.embedding.chunks_exact_mut(HEADS));
        dense.for_each(|row| scaled(&mut row[head]));
        #[expect(clippy::cast_possible_truncation, reason = "weights are f32")]
        let offset = (line.offset / base) as f32;
        weights.hand[head] += offset;
    }
    Ok(weights)
}
