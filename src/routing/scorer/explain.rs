//! Lists the terms of a score.

use super::{
    Embedding, HAND, LANES, SCRATCH, Scorer, TIERS, add,
    features::{Scratch, length},
    grams::{bigram, unigram},
    hand,
};

/// One term of the quality scores.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Contribution {
    /// A word or a pair of words in quotes, the name of a feature, `meaning` (the embedding) or `courtesy`.
    pub term: String,
    /// What it adds to the quality of each tier, the weakest first.
    pub quality: [f32; TIERS],
}

impl Contribution {
    fn new(term: String, heads: [f64; LANES]) -> Self {
        let mut quality = [0.0; TIERS];
        for (quality, head) in quality.iter_mut().zip(heads) {
            *quality = head as f32;
        }
        Self { term, quality }
    }

    fn size(&self) -> f32 {
        self.quality.iter().map(|quality| quality.abs()).sum()
    }
}

impl Scorer {
    /// The terms of the quality scores, largest first. Their sum is the score before it is clamped to 0..=1.
    ///
    /// They contain words of the prompt.
    pub(crate) fn explain(&self, text: &str) -> Vec<Contribution> {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.read(text, &self.vocabulary);
            if scratch.reading.is_courtesy() {
                return vec![Contribution::new("courtesy".into(), [1.0; LANES])];
            }
            let mut terms = self.grams(scratch);
            let measured = hand::measure(scratch.reading.tokens(), scratch.grams.distinct);
            for (feature, value) in measured.into_iter().enumerate() {
                let mut heads = [0.0; LANES];
                let value = self.scaled(feature, value);
                add(&mut heads, value, &self.dense[feature]);
                terms.push(Contribution::new(hand::name(feature).into(), heads));
            }
            let embedding = Embedding::of(&scratch.pieces, &self.weights.rows);
            let mut heads = [0.0; LANES];
            for (value, row) in embedding.numbers().iter().zip(&self.dense[HAND..]) {
                add(&mut heads, f64::from(*value), row);
            }
            terms.push(Contribution::new("meaning".into(), heads));
            terms.retain(|term| term.size() > 0.0);
            terms.sort_by(|a, b| b.size().total_cmp(&a.size()).then(a.term.cmp(&b.term)));
            terms
        })
    }

    /// The terms of the word buckets. Each is named by the first words that were hashed into the bucket.
    fn grams(&self, scratch: &Scratch) -> Vec<Contribution> {
        let tokens = scratch.reading.tokens();
        let text = |at: usize| scratch.reading.text(&tokens[at]);
        let unigrams =
            (0..tokens.len()).map(|at| (unigram(&tokens[at]), format!("\"{}\"", text(at))));
        let bigrams = (1..tokens.len()).map(|at| {
            let term = format!("\"{} {}\"", text(at - 1), text(at));
            (bigram(&tokens[at - 1], &tokens[at]), term)
        });
        let mut named: Vec<(u16, String)> = unigrams.chain(bigrams).collect();
        named.sort_by_key(|(bucket, _)| *bucket);
        named.dedup_by_key(|(bucket, _)| *bucket);
        let values = scratch.grams.values();
        let length = length(values.map(|(_, v)| i64::from(v) * i64::from(v)).sum());
        let term = |(bucket, term): (u16, String)| {
            let value = f64::from(scratch.grams.value(bucket)) / length;
            let row = &self.grams[usize::from(bucket)];
            let mut heads = [0.0; LANES];
            for (head, unit) in self.weights.gram_units.iter().enumerate() {
                heads[head] = value * f64::from(row[head]) * f64::from(*unit);
            }
            Contribution::new(term, heads)
        };
        named.into_iter().map(term).collect()
    }
}
