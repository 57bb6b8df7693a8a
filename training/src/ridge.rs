//! Ridge regression: linear heads by least squares with a penalty on the weights.

use crate::scorer::{BUCKETS, DIM, HAND};

pub const DENSE: usize = HAND + DIM;
pub const WIDTH: usize = BUCKETS + DENSE;

/// The normalised features of one prompt.
pub struct Example {
    pub grams: Vec<(u16, f32)>,
    pub dense: [f32; DENSE],
}

/// One row per feature: buckets, then hand-crafted features, then the embedding.
pub type Matrix<const H: usize> = Vec<[f32; H]>;

/// The penalty of each group of features.
#[derive(Clone, Copy, Debug)]
pub struct Penalty {
    pub grams: f32,
    pub hand: f32,
    pub embedding: f32,
}

impl Penalty {
    fn of(self, feature: usize) -> f32 {
        match feature {
            _ if feature < BUCKETS => self.grams,
            BUCKETS => 1e-3, // the base
            _ if feature < BUCKETS + HAND => self.hand,
            _ => self.embedding,
        }
    }
}

pub fn predict<const H: usize>(weights: &Matrix<H>, example: &Example) -> [f32; H] {
    let mut sums = [0.0; H];
    let grams = example.grams.iter().map(|(b, v)| (usize::from(*b), *v));
    let dense = example
        .dense
        .iter()
        .enumerate()
        .map(|(at, v)| (BUCKETS + at, *v));
    for (at, value) in grams.chain(dense) {
        for (sum, weight) in sums.iter_mut().zip(&weights[at]) {
            *sum += value * weight;
        }
    }
    sums
}

fn accumulate<const H: usize>(into: &mut Matrix<H>, example: &Example, amounts: [f32; H]) {
    let grams = example.grams.iter().map(|(b, v)| (usize::from(*b), *v));
    let dense = example
        .dense
        .iter()
        .enumerate()
        .map(|(at, v)| (BUCKETS + at, *v));
    for (at, value) in grams.chain(dense) {
        for (to, amount) in into[at].iter_mut().zip(amounts) {
            *to += value * amount;
        }
    }
}

fn dots<const H: usize>(a: &Matrix<H>, b: &Matrix<H>) -> [f64; H] {
    let mut sums = [0.0; H];
    for (a, b) in a.iter().zip(b) {
        for head in 0..H {
            sums[head] += f64::from(a[head]) * f64::from(b[head]);
        }
    }
    sums
}

/// Fits by preconditioned conjugate gradients: every head separately, but all in the same passes over the examples.
pub fn fit<const H: usize>(
    examples: &[&Example],
    targets: &[[f32; H]],
    counts: &[f32],
    penalty: Penalty,
    rounds: usize,
) -> Matrix<H> {
    let mut residual = vec![[0.0; H]; WIDTH];
    let mut diagonal: Vec<f32> = (0..WIDTH).map(|at| penalty.of(at)).collect();
    for ((example, target), count) in examples.iter().zip(targets).zip(counts) {
        accumulate(&mut residual, example, target.map(|t| t * count));
        for (bucket, value) in &example.grams {
            diagonal[usize::from(*bucket)] += count * value * value;
        }
        for (at, value) in example.dense.iter().enumerate() {
            diagonal[BUCKETS + at] += count * value * value;
        }
    }
    let preconditioned = |residual: &Matrix<H>| -> Matrix<H> {
        let each = residual.iter().zip(&diagonal);
        each.map(|(row, d)| row.map(|r| r / d)).collect()
    };
    let mut weights = vec![[0.0; H]; WIDTH];
    let mut step = preconditioned(&residual);
    let mut energy = dots(&residual, &step);
    for _ in 0..rounds {
        let mut image: Matrix<H> = step
            .iter()
            .enumerate()
            .map(|(at, row)| row.map(|s| s * penalty.of(at)))
            .collect();
        for (example, count) in examples.iter().zip(counts) {
            let amounts = predict(&step, example).map(|p| p * count);
            accumulate(&mut image, example, amounts);
        }
        let curve = dots(&step, &image);
        let mut length = [0.0_f32; H];
        for head in 0..H {
            if curve[head] > 1e-12 {
                length[head] = (energy[head] / curve[head]) as f32;
            }
        }
        for at in 0..WIDTH {
            for head in 0..H {
                weights[at][head] += length[head] * step[at][head];
                residual[at][head] -= length[head] * image[at][head];
            }
        }
        let next = preconditioned(&residual);
        let fresh = dots(&residual, &next);
        for at in 0..WIDTH {
            for head in 0..H {
                let keep = if energy[head] > 1e-12 {
                    fresh[head] / energy[head]
                } else {
                    0.0
                };
                step[at][head] = next[at][head] + keep as f32 * step[at][head];
            }
        }
        energy = fresh;
    }
    weights
}
