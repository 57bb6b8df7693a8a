//! Scores a prompt: how likely a model of each quality tier is to answer it well, and which domain it belongs to.
//!
//! Pure: no clock, no network, no randomness, and no arithmetic that differs between machines, so a text has the same
//! scores everywhere. Every score is a sum of named terms, which [`Scorer::explain`] lists. docs/ROUTING.md describes
//! the training and the measured quality. Weights that are damaged or of another format are refused with the reason.
//!
//! One pass over the first and the last 4 KiB computes hashed counts of words and word pairs, hand-crafted features,
//! and the mean of the words' static embeddings; linear heads turn these into scores.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "counts within a window of 8 KiB, and scores that need no more digits than f32 has"
)]

use std::{cell::RefCell, sync::LazyLock};

mod class;
mod courtesy;
mod embedding;
mod explain;
mod features;
mod fold;
mod grams;
mod hand;
mod hash;
mod math;
mod pieces;
#[cfg(test)]
mod tests;
mod text;
mod token;
mod weights;
mod word_lists;

pub(crate) use embedding::Embedding;
pub(crate) use explain::Contribution;
pub use features::Features;
pub(crate) use grams::BUCKETS;
pub(crate) use hand::HAND;
pub(crate) use pieces::DIM;
pub use pieces::{Vocabulary, fingerprint};
pub(crate) use weights::Weights;

/// The domains of prompts, in the order of [`Scores::domains`].
pub(crate) const DOMAINS: [&str; 11] = [
    "mathematics",
    "code",
    "physics",
    "chemistry",
    "health",
    "law",
    "business",
    "society",
    "history",
    "philosophy",
    "general",
];
/// Number of quality tiers; they are ordered from the weakest.
pub(crate) const TIERS: usize = 4;
/// Number of linear heads: the tiers, then the domains.
pub(crate) const HEADS: usize = TIERS + DOMAINS.len();

/// The scores of a prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// The probability that a model of each tier answers well, the weakest tier first.
    pub quality: [f32; TIERS],
    /// The probability of each of [`DOMAINS`]; they add up to 1.
    pub domains: [f32; DOMAINS.len()],
}

impl Scores {
    /// The scores of a courtesy, by rule: the training data has none, and every model can return a greeting.
    fn of_courtesy() -> Self {
        let domains = DOMAINS.map(|domain| if domain == "general" { 1.0 } else { 0.0 });
        Self {
            quality: [1.0; TIERS],
            domains,
        }
    }
}

/// Texts with more bytes are not checked for being a mere courtesy.
const MAX_COURTESY_BYTES: usize = 120;

/// The heads padded to sixteen, so that SIMD instructions add all at once; the last lane is always 0.
const LANES: usize = HEADS + 1;

pub struct Scorer {
    weights: Weights,
    /// The bucket weights of `weights`, one padded row per bucket.
    grams: Vec<[i8; LANES]>,
    /// The weights of the hand-crafted features, then those of the embedding, one padded row each.
    dense: Vec<[f64; LANES]>,
    vocabulary: Vocabulary,
    version: String,
}

/// The weights built into the program.
static BUILT_IN: &[u8] = include_bytes!("router.bin");

static EMBEDDED: LazyLock<Scorer> = LazyLock::new(|| {
    let (weights, version) = Weights::built_in(BUILT_IN).expect("the built-in weights are valid");
    Scorer::new(weights, version)
});

thread_local! {
    static SCRATCH: RefCell<features::Scratch> = RefCell::default();
}

impl Scorer {
    /// The scorer with the built-in weights.
    pub fn embedded() -> &'static Self {
        &EMBEDDED
    }

    /// A scorer with weights from a file that `training` or calibration wrote.
    pub fn read(file: &[u8]) -> Result<Self, String> {
        let (weights, version) = Weights::decode(file)?;
        Ok(Self::new(weights, version))
    }

    fn new(weights: Weights, version: String) -> Self {
        LazyLock::force(&text::KINDS);
        let mut grams = vec![[0; LANES]; BUCKETS];
        for (row, heads) in grams.iter_mut().zip(weights.grams.chunks_exact(HEADS)) {
            row[..HEADS].copy_from_slice(heads);
        }
        let mut dense = vec![[0.0; LANES]; HAND + DIM];
        let rows = weights.hand.chunks_exact(HEADS);
        let rows = rows.chain(weights.embedding.chunks_exact(HEADS));
        for (row, heads) in dense.iter_mut().zip(rows) {
            for (to, weight) in row.iter_mut().zip(heads) {
                *to = f64::from(*weight);
            }
        }
        Self {
            grams,
            dense,
            vocabulary: weights.vocabulary(),
            weights,
            version,
        }
    }

    /// The version of the weights, derived from their checksum.
    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    pub fn score(&self, text: &str) -> Scores {
        self.score_with_embedding(text).0
    }

    /// The scores and the embedding of a prompt, in one pass.
    pub fn score_with_embedding(&self, text: &str) -> (Scores, Embedding) {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.read(text, &self.vocabulary);
            let embedding = Embedding::of(&scratch.pieces, &self.weights.rows);
            (self.of(scratch, &embedding), embedding)
        })
    }

    /// Whether a text is only a courtesy: a greeting, thanks or the like.
    pub(crate) fn is_courtesy(text: &str) -> bool {
        // Skips the check for most texts, which are longer than any courtesy.
        text.len() <= MAX_COURTESY_BYTES
            && SCRATCH.with_borrow_mut(|scratch| {
                scratch.reading.read(text);
                scratch.reading.is_courtesy()
            })
    }

    /// The embedding of a text.
    pub(crate) fn embedding(&self, text: &str) -> Embedding {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.reading.read(text);
            self.vocabulary.split(&scratch.reading, &mut scratch.pieces);
            Embedding::of(&scratch.pieces, &self.weights.rows)
        })
    }

    fn of(&self, scratch: &features::Scratch, embedding: &Embedding) -> Scores {
        if scratch.reading.is_courtesy() {
            return Scores::of_courtesy();
        }
        let weights = &self.weights;
        let (sums, square) = self.gram_sums(&scratch.grams);
        let length = features::length(square);
        let mut heads = [0.0; LANES];
        for (head, unit) in weights.gram_units.iter().enumerate() {
            heads[head] = f64::from(sums[head]) / length * f64::from(*unit);
        }
        let hand = hand::measure(scratch.reading.tokens(), scratch.grams.distinct);
        for (feature, value) in hand.into_iter().enumerate() {
            let value = self.scaled(feature, value);
            add(&mut heads, value, &self.dense[feature]);
        }
        for (value, row) in embedding.numbers().iter().zip(&self.dense[HAND..]) {
            add(&mut heads, f64::from(*value), row);
        }
        let mut quality = [0.0; TIERS];
        for (quality, head) in quality.iter_mut().zip(&heads) {
            *quality = head.clamp(0.0, 1.0) as f32;
        }
        Scores {
            quality,
            domains: posterior(&heads[TIERS..HEADS], weights.sharpness.into()),
        }
    }

    /// The sum of the weights of the buckets in use times their values, and the sum of the squared values.
    ///
    /// Most buckets have a count of 1. So all rows are summed as if every count were 1, which needs one multiplication
    /// at the end, and the difference is added for the others.
    fn gram_sums(&self, grams: &grams::Grams) -> ([i32; LANES], i64) {
        let row = |bucket: u16| &self.grams[usize::from(bucket)];
        let once = i32::from(math::ln_1p_256(1));
        let used = grams.used();
        let mut sums = total(used.iter().map(|bucket| row(*bucket)), |n| n).map(|sum| sum * once);
        let mut square = i64::from(used.len() as u32) * i64::from(once * once);
        for bucket in grams.repeated() {
            let value = i32::from(grams.value(*bucket));
            square += i64::from(value * value - once * once);
            let row = row(*bucket);
            for lane in 0..LANES {
                sums[lane] += (value - once) * i32::from(row[lane]);
            }
        }
        (sums, square)
    }

    fn scaled(&self, feature: usize, value: f32) -> f64 {
        let (middle, scale) = (
            self.weights.hand_middle[feature],
            self.weights.hand_scale[feature],
        );
        (f64::from(value) - f64::from(middle)) * f64::from(scale)
    }
}

/// The sum of rows of 8-bit numbers. Blocks of 255 rows are summed in 16 bits, in which they cannot overflow.
fn total<'a, T: Copy + 'a, const N: usize>(
    mut rows: impl ExactSizeIterator<Item = &'a [T; N]>,
    number: impl Fn(T) -> i8,
) -> [i32; N] {
    let mut sums = [0_i32; N];
    while rows.len() > 0 {
        let mut block = [0_i16; N];
        for row in rows.by_ref().take(255) {
            for at in 0..N {
                block[at] += i16::from(number(row[at]));
            }
        }
        for at in 0..N {
            sums[at] += i32::from(block[at]);
        }
    }
    sums
}

fn add(heads: &mut [f64; LANES], value: f64, weights: &[f64; LANES]) {
    for lane in 0..LANES {
        heads[lane] += value * weights[lane];
    }
}

fn posterior(heads: &[f64], sharpness: f64) -> [f32; DOMAINS.len()] {
    let top = heads.iter().copied().fold(f64::MIN, f64::max);
    let mut powers = [0.0; DOMAINS.len()];
    for (power, head) in powers.iter_mut().zip(heads) {
        *power = math::exp((head - top) * sharpness);
    }
    let sum: f64 = powers.iter().sum();
    powers.map(|power| (power / sum) as f32)
}
