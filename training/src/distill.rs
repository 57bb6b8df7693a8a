//! Computes a static embedding of each piece of a sentence encoder's vocabulary.
//!
//! The encoder is all-MiniLM-L6-v2 (Apache-2.0): six layers, twelve heads of 32. It is run on `[CLS] piece [SEP]`, and
//! the mean of the three outputs is the embedding.

use std::{collections::HashMap, fs, path::Path, thread};

use serde_json::Value;

use crate::table::{RAW, Table};

const INNER: usize = 1536;
const HEAD: usize = 32;
const LAYERS: usize = 6;
/// `[CLS]`, the piece and `[SEP]`.
const PLACES: usize = 3;
/// Pieces per batch.
const BATCH: usize = 16;
const CLS: usize = 101;
const SEP: usize = 102;

struct Model(HashMap<String, Vec<f32>>);

impl Model {
    fn read(path: &Path) -> Result<Self, String> {
        let bad = || format!("{} is not a model in safetensors", path.display());
        let file = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let (size, rest) = file.split_first_chunk().ok_or_else(bad)?;
        let size = usize::try_from(u64::from_le_bytes(*size)).map_err(|_| bad())?;
        let (head, body) = rest.split_at_checked(size).ok_or_else(bad)?;
        let head: HashMap<String, Value> = serde_json::from_slice(head).map_err(|_| bad())?;
        let mut tensors = HashMap::new();
        for (name, tensor) in head {
            if tensor["dtype"] != "F32" {
                continue;
            }
            let edge = |at: usize| tensor["data_offsets"][at].as_u64().map(|n| n as usize);
            let range = edge(0).zip(edge(1)).ok_or_else(bad)?;
            let bytes = body.get(range.0..range.1).ok_or_else(bad)?;
            let floats = bytes.as_chunks().0.iter().map(|n| f32::from_le_bytes(*n));
            tensors.insert(name, floats.collect());
        }
        Ok(Self(tensors))
    }

    fn get(&self, name: &str) -> &[f32] {
        self.0
            .get(name)
            .map_or_else(|| panic!("the model has no {name}"), Vec::as_slice)
    }

    fn linear(&self, name: &str, input: &[f32], width: usize) -> Vec<f32> {
        let weights = self.get(&format!("{name}.weight"));
        let bias = self.get(&format!("{name}.bias"));
        let mut output = vec![0.0; input.len() / width * bias.len()];
        // The outer loop is over the weights, which are large; the rows stay in the cache.
        for (at, weights) in weights.chunks_exact(width).enumerate() {
            let rows = input.chunks(PLACES * width);
            for (rows, output) in rows.zip(output.chunks_mut(PLACES * bias.len())) {
                for (row, sum) in dots(weights, rows).into_iter().enumerate() {
                    output[row * bias.len() + at] = sum + bias[at];
                }
            }
        }
        output
    }

    fn norm(&self, name: &str, rows: &mut [f32]) {
        let weights = self.get(&format!("{name}.weight"));
        let bias = self.get(&format!("{name}.bias"));
        for row in rows.chunks_exact_mut(RAW) {
            let mean = row.iter().sum::<f32>() / RAW as f32;
            let spread = row.iter().map(|n| (n - mean) * (n - mean)).sum::<f32>() / RAW as f32;
            let scale = 1.0 / (spread + 1e-12).sqrt();
            for (at, number) in row.iter_mut().enumerate() {
                *number = (*number - mean) * scale * weights[at] + bias[at];
            }
        }
    }

    /// The embeddings of a batch of pieces.
    fn pieces(&self, pieces: &[usize]) -> Vec<f32> {
        let words = self.get("embeddings.word_embeddings.weight");
        let places = self.get("embeddings.position_embeddings.weight");
        let kinds = self.get("embeddings.token_type_embeddings.weight");
        let mut state = Vec::with_capacity(pieces.len() * PLACES * RAW);
        for piece in pieces {
            for (place, id) in [CLS, *piece, SEP].into_iter().enumerate() {
                let (word, place) = (&words[id * RAW..], &places[place * RAW..]);
                state.extend((0..RAW).map(|at| word[at] + place[at] + kinds[at]));
            }
        }
        self.norm("embeddings.LayerNorm", &mut state);
        for layer in 0..LAYERS {
            state = self.layer(&format!("encoder.layer.{layer}"), &state);
        }
        let mean = |state: &[f32], at: usize| {
            (0..PLACES)
                .map(|place| state[place * RAW + at])
                .sum::<f32>()
                / PLACES as f32
        };
        let states = state.chunks_exact(PLACES * RAW);
        states
            .flat_map(|state| (0..RAW).map(move |at| mean(state, at)))
            .collect()
    }

    fn layer(&self, layer: &str, state: &[f32]) -> Vec<f32> {
        let queries = self.linear(&format!("{layer}.attention.self.query"), state, RAW);
        let keys = self.linear(&format!("{layer}.attention.self.key"), state, RAW);
        let values = self.linear(&format!("{layer}.attention.self.value"), state, RAW);
        let mut attended = vec![0.0; state.len()];
        for place in 0..state.len() / RAW {
            for head in (0..RAW).step_by(HEAD) {
                attend(&queries, &keys, &values, place, head, &mut attended);
            }
        }
        let mut middle = self.linear(&format!("{layer}.attention.output.dense"), &attended, RAW);
        middle
            .iter_mut()
            .zip(state)
            .for_each(|(to, from)| *to += from);
        self.norm(&format!("{layer}.attention.output.LayerNorm"), &mut middle);
        let mut inner = self.linear(&format!("{layer}.intermediate.dense"), &middle, RAW);
        inner.iter_mut().for_each(|n| *n = gelu(*n));
        let mut output = self.linear(&format!("{layer}.output.dense"), &inner, INNER);
        output
            .iter_mut()
            .zip(&middle)
            .for_each(|(to, from)| *to += from);
        self.norm(&format!("{layer}.output.LayerNorm"), &mut output);
        output
    }
}

/// The dot products of one row of weights with the three positions of a piece, so that the weights are loaded once.
fn dots(weights: &[f32], rows: &[f32]) -> [f32; PLACES] {
    let width = weights.len();
    let weights = weights.as_chunks::<8>().0;
    let row = |at: usize| rows[at * width..][..width].as_chunks::<8>().0;
    let (first, second, third) = (row(0), row(1), row(2));
    let mut sums = [[0.0; 8]; PLACES];
    for (((w, a), b), c) in weights.iter().zip(first).zip(second).zip(third) {
        for at in 0..8 {
            sums[0][at] += w[at] * a[at];
            sums[1][at] += w[at] * b[at];
            sums[2][at] += w[at] * c[at];
        }
    }
    sums.map(|sums| sums.iter().sum())
}

/// A dot product with eight partial sums, which the compiler vectorises.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; 8];
    for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        for at in 0..8 {
            sums[at] += a[at] * b[at];
        }
    }
    sums.iter().sum()
}

fn attend(
    queries: &[f32],
    keys: &[f32],
    values: &[f32],
    place: usize,
    head: usize,
    to: &mut [f32],
) {
    let part = |all: &[f32], place: usize| -> [f32; HEAD] {
        let part = &all[place * RAW + head..][..HEAD];
        part.try_into().expect("the slice has the width of a head")
    };
    let query = part(queries, place);
    let mut shares = [0.0; PLACES];
    // A piece attends to its own three positions only, not to the others of the batch.
    let first = place / PLACES * PLACES;
    for (other, share) in shares.iter_mut().enumerate() {
        *share = (dot(&query, &part(keys, first + other)) / (HEAD as f32).sqrt()).exp();
    }
    let all: f32 = shares.iter().sum();
    for (other, share) in shares.into_iter().enumerate() {
        for (at, value) in part(values, first + other).into_iter().enumerate() {
            to[place * RAW + head + at] += share / all * value;
        }
    }
}

fn gelu(x: f32) -> f32 {
    let half = x / std::f32::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * half.abs());
    let terms = [
        1.061_405_4,
        -1.453_152,
        1.421_413_7,
        -0.284_496_74,
        0.254_829_6,
    ];
    let series = terms.into_iter().fold(0.0, |sum, term| sum * t + term) * t;
    let erf = (1.0 - series * (-half * half).exp()).copysign(half);
    0.5 * x * (1.0 + erf)
}

pub fn run(model: &Path, vocab: &Path) -> Result<Table, String> {
    let model = Model::read(model)?;
    let words = fs::read_to_string(vocab).map_err(|e| format!("{}: {e}", vocab.display()))?;
    let pieces: Vec<String> = words.lines().map(str::to_owned).collect();
    let ids: Vec<usize> = (0..pieces.len()).collect();
    let (left, right) = ids.split_at(ids.len() / 2);
    let all = |ids: &[usize]| -> Vec<f32> {
        ids.chunks(BATCH)
            .flat_map(|ids| model.pieces(ids))
            .collect()
    };
    let numbers = thread::scope(|scope| {
        let left = scope.spawn(|| all(left));
        let right = all(right);
        let mut numbers = left.join().expect("the thread does not panic");
        numbers.extend(right);
        numbers
    });
    Ok(Table { pieces, numbers })
}
