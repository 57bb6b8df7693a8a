//! Counts of words and of pairs of adjacent words, hashed into buckets.

use super::{hash, math::ln_1p_256, token::Token};

const BITS: u32 = 14;
/// In the evaluation, sixteen times as many buckets were no better.
pub(crate) const BUCKETS: usize = 1 << BITS;

/// Counts per bucket; the memory is reused between prompts.
pub(super) struct Grams {
    /// Counts saturate at 255, which natural language does not reach in 8 KiB.
    counts: Box<[u8; BUCKETS]>,
    used: List,
    /// Buckets with a count of 2 or more.
    repeated: List,
    /// Number of buckets of single words: nearly the number of distinct words.
    pub distinct: usize,
}

impl Default for Grams {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            used: List::default(),
            repeated: List::default(),
            distinct: 0,
        }
    }
}

/// A list of buckets with preallocated room.
#[derive(Default)]
struct List {
    room: Vec<u16>,
    length: usize,
}

impl List {
    fn clear(&mut self, room: usize) {
        self.length = 0;
        if self.room.len() < room {
            self.room.resize(room, 0);
        }
    }

    /// Writes the bucket always and keeps it only if `keep`: the condition is unpredictable, and a mispredicted branch
    /// costs more than a store.
    #[inline]
    fn push(&mut self, bucket: u16, keep: bool) {
        self.room[self.length] = bucket;
        self.length += usize::from(keep);
    }

    fn all(&self) -> &[u16] {
        &self.room[..self.length]
    }
}

impl Grams {
    pub(crate) fn count(&mut self, tokens: &[Token]) {
        for bucket in self.used.all() {
            self.counts[usize::from(*bucket) % BUCKETS] = 0;
        }
        self.used.clear(2 * tokens.len());
        self.repeated.clear(2 * tokens.len());
        for token in tokens {
            self.add(unigram(token));
        }
        self.distinct = self.used.length;
        for [left, right] in tokens.array_windows() {
            self.add(bigram(left, right));
        }
    }

    #[inline]
    fn add(&mut self, bucket: u16) {
        let count = &mut self.counts[usize::from(bucket) % BUCKETS];
        self.used.push(bucket, *count == 0);
        self.repeated.push(bucket, *count == 1);
        *count = count.saturating_add(1);
    }

    /// The buckets in use.
    pub(crate) fn used(&self) -> &[u16] {
        self.used.all()
    }

    /// The buckets with a count of 2 or more.
    pub(crate) fn repeated(&self) -> &[u16] {
        self.repeated.all()
    }

    /// Each bucket in use with its value: ln(1 + count) in 256ths.
    pub(crate) fn values(&self) -> impl Iterator<Item = (u16, i16)> {
        let used = self.used().iter();
        used.map(|bucket| (*bucket, self.value(*bucket)))
    }

    pub(crate) fn value(&self, bucket: u16) -> i16 {
        ln_1p_256(self.counts[usize::from(bucket) % BUCKETS])
    }
}

pub(super) fn unigram(token: &Token) -> u16 {
    hash::top(token.hash, BITS) as u16
}

pub(super) fn bigram(left: &Token, right: &Token) -> u16 {
    let both = left.hash.rotate_left(17) ^ right.hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash::top(both, BITS) as u16
}
