//! All features of a prompt.

use super::{Embedding, HAND, Weights, grams::Grams, hand, pieces::Vocabulary, text::Reading};

/// Buffers for reading a prompt, reused between prompts.
#[derive(Default)]
pub(super) struct Scratch {
    pub reading: Reading,
    pub grams: Grams,
    pub pieces: Vec<u32>,
}

impl Scratch {
    pub(crate) fn read(&mut self, text: &str, vocabulary: &Vocabulary) {
        self.reading.read(text);
        self.grams.count(self.reading.tokens());
        vocabulary.split(&self.reading, &mut self.pieces);
    }
}

/// The features for training: identical to those that [`score`](super::Scorer::score) uses.
pub struct Features {
    /// The buckets in use and their values, normalised to length 1.
    pub grams: Vec<(u16, f32)>,
    pub hand: [f32; HAND],
    pub embedding: Embedding,
}

impl Features {
    pub fn of(text: &str, vocabulary: &Vocabulary, table: &Weights) -> Self {
        let mut scratch = Scratch::default();
        scratch.read(text, vocabulary);
        let values: Vec<(u16, i16)> = scratch.grams.values().collect();
        let square = values.iter().map(|(_, v)| i64::from(*v) * i64::from(*v));
        let length = length(square.sum());
        Self {
            grams: values
                .into_iter()
                .map(|(bucket, value)| (bucket, (f64::from(value) / length) as f32))
                .collect(),
            hand: hand::measure(scratch.reading.tokens(), scratch.grams.distinct),
            embedding: Embedding::of(&scratch.pieces, &table.rows),
        }
    }

    /// The pieces of a text's words, for training the table of embeddings.
    pub fn pieces(text: &str, vocabulary: &Vocabulary) -> Vec<u32> {
        let (mut reading, mut pieces) = (Reading::default(), Vec::new());
        reading.read(text);
        vocabulary.split(&reading, &mut pieces);
        pieces
    }
}

pub(super) fn length(square: i64) -> f64 {
    (square.max(1) as f64).sqrt()
}
