//! What the scorer expects of each tier, brought nearer to what the operator's models do.
//!
//! A head is a sum of weighted features, so a straight line through it is a head again: its weights
//! times the slope, and the rest in the weight of the base, a feature that is always 1. The lines are
//! fitted to the sums before those are held between 0 and 1.

use serde::Serialize;

use super::{
    super::scorer::{HEADS, Scorer, TIERS, Weights},
    labels::Label,
    number::{count, four_places},
};
use crate::catalog::Catalog;

/// How many labels' worth of doubt there is that a tier has to be moved up or down: the spread of a
/// label (.45) over that of what tiers are off by (.2), squared.
const DOUBT: f64 = 5.0;
/// Likewise about its slope, which differs from 1 by some .5.
const SLOPE_DOUBT: f64 = 0.8;
const BINS: usize = 10;

/// How well a model of a tier answered, and what was expected.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// From 0.
    pub tier: usize,
    /// Not yet held between 0 and 1.
    pub expected: f64,
    pub score: f64,
}

/// What a tier's sums are multiplied by, and what is added to them then.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Line {
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

pub type Lines = [Line; TIERS];

/// How far expectations are from scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Error {
    /// The root of the mean square of the differences.
    #[serde(serialize_with = "four_places")]
    pub rms: f64,
    /// How far the mean score is from the mean expectation, among prompts of like expectation.
    #[serde(serialize_with = "four_places")]
    pub calibration: f64,
}

/// The points of each label.
pub fn points(labels: &[Label], catalog: &Catalog, scorer: &Scorer) -> Vec<Vec<Point>> {
    let of = |label: &Label| {
        if Scorer::is_courtesy(&label.prompt) {
            return Vec::new(); // for these there is a rule
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

/// Least squares, drawn towards leaving things as they are: less so the more labels there are.
pub fn fit(points: &[Point]) -> Lines {
    let mut lines = Lines::default();
    for (tier, line) in lines.iter_mut().enumerate() {
        let here = || points.iter().filter(|point| point.tier == tier);
        let number = count(here().count());
        if number < 1.0 {
            continue;
        }
        let middle = here().map(|point| point.expected).sum::<f64>() / number;
        let up = here()
            .map(|point| point.score - point.expected)
            .sum::<f64>();
        let (mut spread, mut lean) = (0.0, 0.0);
        for point in here() {
            let aside = point.expected - middle;
            spread += aside * aside;
            lean += aside * (point.score - point.expected);
        }
        // A harder prompt is never to look easier for it.
        let slope = (lean / (spread + SLOPE_DOUBT)).max(-1.0);
        *line = Line {
            scale: 1.0 + slope,
            offset: up / (number + DOUBT) - slope * middle,
        };
    }
    lines
}

/// How well expectations fit once lines are drawn through them.
pub fn error(points: &[Point], lines: &Lines) -> Error {
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
    let apart = bins
        .iter()
        .map(|(expected, score)| (expected - score).abs());
    Error {
        rms: (squares / number).sqrt(),
        calibration: apart.sum::<f64>() / number,
    }
}

/// The weights with the lines in them.
pub fn written(weights: &Weights, lines: &Lines) -> Result<Weights, String> {
    let mut weights = weights.clone();
    let base = (1.0 - f64::from(weights.hand_middle[0])) * f64::from(weights.hand_scale[0]);
    if base.abs() < 1e-6 {
        return Err("these weights have no base that could take an offset".into());
    }
    for (head, line) in lines.iter().enumerate() {
        #[expect(clippy::cast_possible_truncation, reason = "weights are f32")]
        let scaled = |weight: &mut f32| *weight = (f64::from(*weight) * line.scale) as f32;
        scaled(&mut weights.gram_units[head]);
        let dense = weights.hand.chunks_exact_mut(HEADS);
        let dense = dense.chain(weights.meaning.chunks_exact_mut(HEADS));
        dense.for_each(|row| scaled(&mut row[head]));
        #[expect(clippy::cast_possible_truncation, reason = "weights are f32")]
        let offset = (line.offset / base) as f32;
        weights.hand[head] += offset;
    }
    Ok(weights)
}
