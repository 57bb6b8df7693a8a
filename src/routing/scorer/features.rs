//! All features of a prompt.

use super::{HAND, Meaning, Weights, grams::Grams, hand, pieces::Vocabulary, text::Reading};

/// What reading a prompt needs, kept between prompts.
#[derive(Default)]
pub(super) struct Scratch {
    pub reading: Reading,
    pub grams: Grams,
    pub pieces: Vec<u32>,
}

impl Scratch {
    pub fn read(&mut self, text: &str, vocabulary: &Vocabulary) {
        self.reading.read(text);
        self.grams.count(self.reading.tokens());
        vocabulary.cut(&self.reading, &mut self.pieces);
    }
}

/// The features as training sees them: the very ones that [`score`](super::Scorer::score) uses.
pub struct Features {
    /// Buckets in use, at length one together.
    pub grams: Vec<(u16, f32)>,
    pub hand: [f32; HAND],
    pub meaning: Meaning,
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
            meaning: Meaning::of(&scratch.pieces, &table.rows),
        }
    }

    /// The pieces of a text's words, for training a table.
    pub fn pieces(text: &str, vocabulary: &Vocabulary) -> Vec<u32> {
        let (mut reading, mut pieces) = (Reading::default(), Vec::new());
        reading.read(text);
        vocabulary.cut(&reading, &mut pieces);
        pieces
    }
}

pub(super) fn length(square: i64) -> f64 {
    (square.max(1) as f64).sqrt()
}
