//! Learns the weights of the scorer's heads from examples.

use crate::scorer::{BUCKETS, DIM, DOMAINS, Features, HAND, HEADS, TIERS, Vocabulary, Weights};

use crate::{
    changes::{stem, typos},
    data::Data,
    ridge::{Example, Matrix, Penalty, fit},
};

/// Standard deviation to which hand-crafted features are scaled: about that of a bucket of a short prompt.
const HAND_SPREAD: f64 = 0.1;
const ROUNDS: usize = 40;
/// Penalty for the quality heads, which learn the mean score of a tier's models.
const QUALITY: Penalty = Penalty {
    grams: 10.0,
    hand: 2.0,
    embedding: 40.0,
};
/// Penalty for the score of a single model, which is much noisier than a mean.
pub const PAIR: Penalty = Penalty {
    grams: 80.0,
    hand: 40.0,
    embedding: 600.0,
};
/// Penalty for the domain heads; a prompt's words determine its domain well.
const DOMAIN: Penalty = Penalty {
    grams: 1.0,
    // Signs and lengths depend on the data set's style rather than on the domain.
    hand: 1000.0,
    embedding: 4.0,
};

/// The features of the data, normalised.
pub struct Examples {
    pub all: Vec<Example>,
    pub middle: Vec<f32>,
    pub scale: Vec<f32>,
}

fn raw(text: &str, vocabulary: &Vocabulary, table: &Weights) -> Features {
    Features::of(text, vocabulary, table)
}

impl Examples {
    pub fn new(prompts: &[&str], table: &Weights) -> Self {
        let vocabulary = table.vocabulary();
        let features: Vec<Features> = prompts.iter().map(|p| raw(p, &vocabulary, table)).collect();
        let (mut middle, mut scale) = (vec![0.0; HAND], vec![1.0; HAND]);
        let count = features.len() as f64;
        // The first feature is the base, which is not scaled.
        for at in 1..HAND {
            let values = || features.iter().map(|f| f64::from(f.hand[at]));
            let mean = values().sum::<f64>() / count;
            let spread = values().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
            middle[at] = mean as f32;
            scale[at] = (HAND_SPREAD / spread.sqrt().max(1e-3)) as f32;
        }
        let all = features
            .iter()
            .map(|f| example(f, &middle, &scale))
            .collect();
        Self { all, middle, scale }
    }

    /// Features of further prompts with the same normalisation.
    pub fn like(&self, prompts: &[String], table: &Weights) -> Vec<Example> {
        let vocabulary = table.vocabulary();
        let features = prompts.iter().map(|p| raw(p, &vocabulary, table));
        features
            .map(|f| example(&f, &self.middle, &self.scale))
            .collect()
    }

    /// The weights with these heads, quantised as in the shipped file.
    pub fn weights(&self, heads: &Matrix<HEADS>, table: &Weights, sharpness: f32) -> Weights {
        let mut weights = Weights {
            hand_middle: self.middle.clone(),
            hand_scale: self.scale.clone(),
            hand: heads[BUCKETS..BUCKETS + HAND].concat(),
            embedding: heads[BUCKETS + HAND..][..DIM].concat(),
            gram_units: vec![1.0; HEADS],
            grams: vec![0; BUCKETS * HEADS],
            sharpness,
            ..table.clone()
        };
        for head in 0..HEADS {
            let sizes = heads[..BUCKETS].iter().map(|row| row[head].abs());
            let unit = sizes.fold(1e-9, f32::max) / 127.0;
            weights.gram_units[head] = unit;
            for (bucket, row) in heads[..BUCKETS].iter().enumerate() {
                weights.grams[bucket * HEADS + head] = (row[head] / unit).round() as i8;
            }
        }
        weights
    }
}

fn example(features: &Features, middle: &[f32], scale: &[f32]) -> Example {
    let mut dense = [0.0; HAND + DIM];
    for at in 0..HAND {
        dense[at] = (features.hand[at] - middle[at]) * scale[at];
    }
    dense[HAND..].copy_from_slice(features.embedding.numbers());
    Example {
        grams: features.grams.clone(),
        dense,
    }
}

/// Learns the heads from `rows` and their copies.
pub fn learn(data: &Data, examples: &Examples, copies: &Copies, rows: &[usize]) -> Matrix<HEADS> {
    let sizes = |row: &usize| {
        let bench = &data.rows[*row].bench;
        rows.iter()
            .filter(|other| data.rows[**other].bench == *bench)
            .count() as f32
    };
    // A data set is weighted by the square root of its size: the largest has sixteen times as many prompts as the
    // smallest, which does not reflect what users send.
    let mut weights: Vec<(&str, f32)> = Vec::new();
    let mut counts: Vec<f32> = Vec::new();
    for row in rows {
        let bench = data.rows[*row].bench.as_str();
        let found = weights
            .iter()
            .find(|(name, _)| *name == bench)
            .map(|(_, w)| *w);
        counts.push(found.unwrap_or_else(|| {
            let weight = (3000.0 / sizes(row)).sqrt() / 2.0;
            weights.push((bench, weight));
            weight
        }));
    }
    let mut quality: Vec<[f32; TIERS]> = rows.iter().map(|row| data.quality[*row]).collect();
    let mut domains: Vec<[f32; DOMAINS.len()]> = vec![[0.0; DOMAINS.len()]; rows.len()];
    for (target, row) in domains.iter_mut().zip(rows) {
        target[data.domains[*row]] = 1.0;
    }
    quality.extend_from_within(..);
    domains.extend_from_within(..);
    counts.extend_from_within(..);
    let with_typos = copies.with_typos(examples, rows);
    let quality = fit(&with_typos, &quality, &counts, QUALITY, ROUNDS);
    let with_stems = both(&examples.all, &copies.stems, rows);
    let domains = fit(&with_stems, &domains, &counts, DOMAIN, ROUNDS);
    let mut heads = vec![[0.0; HEADS]; quality.len()];
    for (row, (quality, domains)) in heads.iter_mut().zip(quality.iter().zip(&domains)) {
        row[..TIERS].copy_from_slice(quality);
        row[TIERS..].copy_from_slice(domains);
    }
    heads
}

/// The rows, then their copies.
fn both<'a>(all: &'a [Example], copies: &'a [Example], rows: &[usize]) -> Vec<&'a Example> {
    let copies = rows.iter().map(|row| &copies[*row]);
    rows.iter().map(|row| &all[*row]).chain(copies).collect()
}

/// Indices of the rows that may be learned from.
pub fn usable(data: &Data) -> Vec<usize> {
    (0..data.rows.len())
        .filter(|row| data.rows[*row].is_known() && !data.rows[*row].is_mislabelled())
        .collect()
}

/// Changed copies of every prompt.
pub struct Copies {
    /// With typos, twice as many as robustness is measured with.
    typos: Vec<Example>,
    /// Without the options of a multiple-choice question, as a user would ask it.
    stems: Vec<Example>,
}

impl Copies {
    pub fn new(data: &Data, examples: &Examples, table: &Weights) -> Self {
        let all = |change: fn(&str) -> String| -> Vec<Example> {
            let texts: Vec<String> = data.rows.iter().map(|row| change(&row.prompt)).collect();
            examples.like(&texts, table)
        };
        Self {
            typos: all(|prompt| typos(prompt, 10, 7)),
            stems: all(stem),
        }
    }

    /// The rows, then their copies with typos.
    pub fn with_typos<'a>(&'a self, examples: &'a Examples, rows: &[usize]) -> Vec<&'a Example> {
        both(&examples.all, &self.typos, rows)
    }
}
