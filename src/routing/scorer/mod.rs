//! How likely each tier of models is to answer a prompt well, and what the prompt is about.
//!
//! Pure: no clock, no network, no randomness, and no arithmetic that differs between machines, so
//! one text has one score wherever it is asked for. Every score is a sum of named terms, which
//! [`Scorer::explain`] lists. docs/ROUTING.md says how it was trained and what it is worth.
//!
//! One pass over the first and the last 4 KiB: words and pairs of words in hashed buckets, some
//! features chosen by hand, and the mean of the words' static embeddings; then linear heads.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "counts within a window of 8 KiB, and scores that need no more digits than f32 has"
)]

use std::{cell::RefCell, sync::LazyLock};

mod class;
mod courtesy;
mod explain;
mod features;
mod fold;
mod grams;
mod hand;
mod hash;
mod listed;
mod logs;
mod meaning;
mod pieces;
#[cfg(test)]
mod tests;
mod text;
mod token;
mod weights;

pub use explain::Contribution;
pub use features::Features;
pub use grams::BUCKETS;
pub use hand::HAND;
pub use meaning::Meaning;
pub use pieces::{DIM, Vocabulary, fingerprint};
pub use weights::Weights;

/// What a prompt can be about, in the order of [`Scores::domains`].
pub const DOMAINS: [&str; 11] = [
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
/// Quality tiers, weakest first.
pub const TIERS: usize = 4;
/// The linear heads: the tiers, then the domains.
pub const HEADS: usize = TIERS + DOMAINS.len();

/// What the scorer thinks of a prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// How likely a model of each tier is to answer well, weakest tier first.
    pub quality: [f32; TIERS],
    /// How likely the prompt is about each of [`DOMAINS`]; adds up to one.
    pub domains: [f32; DOMAINS.len()],
}

impl Scores {
    /// A rule, since no such prompt was learned from: every model can return a greeting.
    fn of_courtesy() -> Self {
        let domains = DOMAINS.map(|domain| if domain == "general" { 1.0 } else { 0.0 });
        Self {
            quality: [1.0; TIERS],
            domains,
        }
    }
}

/// In bytes.
const LONGEST_COURTESY: usize = 120;

/// The heads, and one that is always nothing: sixteen are added up at once, fifteen one by one.
const LANES: usize = HEADS + 1;

pub struct Scorer {
    weights: Weights,
    /// The weights of the buckets again, each in a row of its own.
    grams: Vec<[i8; LANES]>,
    /// Likewise the ones of the features by hand, and then those of the meaning.
    dense: Vec<[f64; LANES]>,
    vocabulary: Vocabulary,
    version: String,
}

/// The weights that come with the program.
static BUILT_IN: &[u8] = include_bytes!("router.bin");

static EMBEDDED: LazyLock<Scorer> = LazyLock::new(|| {
    let (weights, version) = Weights::built_in(BUILT_IN).expect("the weights that were built in");
    Scorer::new(weights, version)
});

thread_local! {
    static SCRATCH: RefCell<features::Scratch> = RefCell::default();
}

impl Scorer {
    /// The scorer whose weights come with the program.
    pub fn embedded() -> &'static Self {
        &EMBEDDED
    }

    /// A scorer with weights of one's own, as `training` writes them.
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
        let rows = rows.chain(weights.meaning.chunks_exact(HEADS));
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

    /// Changes whenever the weights do.
    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    pub fn score(&self, text: &str) -> Scores {
        self.score_with_meaning(text).0
    }

    /// What the scorer thinks of a prompt, and what the prompt means, in one pass.
    pub fn score_with_meaning(&self, text: &str) -> (Scores, Meaning) {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.read(text, &self.vocabulary);
            let meaning = Meaning::of(&scratch.pieces, &self.weights.rows);
            (self.of(scratch, &meaning), meaning)
        })
    }

    /// Whether a text is nothing but a greeting, thanks and the like.
    pub fn is_courtesy(text: &str) -> bool {
        // None is that long, and most texts are longer.
        text.len() <= LONGEST_COURTESY
            && SCRATCH.with_borrow_mut(|scratch| {
                scratch.reading.read(text);
                scratch.reading.is_courtesy()
            })
    }

    /// What a text means, to be compared with another's.
    pub fn meaning(&self, text: &str) -> Meaning {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.reading.read(text);
            self.vocabulary.cut(&scratch.reading, &mut scratch.pieces);
            Meaning::of(&scratch.pieces, &self.weights.rows)
        })
    }

    fn of(&self, scratch: &features::Scratch, meaning: &Meaning) -> Scores {
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
        for (value, row) in meaning.numbers().iter().zip(&self.dense[HAND..]) {
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

    /// The weights of the buckets in use times their values, and the values' squares.
    ///
    /// Most buckets are in use once. So all are added up as if they were, which takes no product,
    /// and what is missing is added for the others.
    fn gram_sums(&self, grams: &grams::Grams) -> ([i32; LANES], i64) {
        let row = |bucket: u16| &self.grams[usize::from(bucket)];
        let once = i32::from(logs::ln_1p_256(1));
        let used = grams.used();
        let mut sums = total(used.iter().map(|bucket| row(*bucket)), |n| n).map(|sum| sum * once);
        let mut square = i64::from(used.len() as u32) * i64::from(once * once);
        for bucket in grams.again() {
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

/// The sum of rows of small numbers, in sixteen bits as long as it surely fits.
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
        *power = logs::exp((head - top) * sharpness);
    }
    let sum: f64 = powers.iter().sum();
    powers.map(|power| (power / sum) as f32)
}
