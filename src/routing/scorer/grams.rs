//! How often each word and each pair of neighbours occurs, hashed into buckets.

use super::{hash, logs::ln_1p_256, token::Token};

const BITS: u32 = 14;
/// As good as sixteen times as many on the prompts it was measured with.
pub const BUCKETS: usize = 1 << BITS;

/// Counts per bucket; kept between prompts.
pub(super) struct Grams {
    /// Up to 255: what occurs more often in 8 KiB is no longer language.
    counts: Box<[u8; BUCKETS]>,
    used: List,
    /// Those that are in use more than once.
    again: List,
    /// How many buckets single words fell into: nearly the number of different words.
    pub distinct: usize,
}

impl Default for Grams {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            used: List::default(),
            again: List::default(),
            distinct: 0,
        }
    }
}

/// Some buckets, and room for more.
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

    /// Always writes the bucket down and keeps it only if it is to be kept: that cannot be
    /// foreseen, and a branch that is foreseen wrongly costs more than a store.
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
    pub fn count(&mut self, tokens: &[Token]) {
        for bucket in self.used.all() {
            self.counts[usize::from(*bucket) % BUCKETS] = 0;
        }
        self.used.clear(2 * tokens.len());
        self.again.clear(2 * tokens.len());
        for token in tokens {
            self.add(single(token));
        }
        self.distinct = self.used.length;
        for [left, right] in tokens.array_windows() {
            self.add(double(left, right));
        }
    }

    #[inline]
    fn add(&mut self, bucket: u16) {
        let count = &mut self.counts[usize::from(bucket) % BUCKETS];
        self.used.push(bucket, *count == 0);
        self.again.push(bucket, *count == 1);
        *count = count.saturating_add(1);
    }

    /// The buckets in use.
    pub fn used(&self) -> &[u16] {
        self.used.all()
    }

    /// The buckets in use more than once.
    pub fn again(&self) -> &[u16] {
        self.again.all()
    }

    /// Each bucket in use with the logarithm of its count, in 256ths.
    pub fn values(&self) -> impl Iterator<Item = (u16, i16)> {
        let used = self.used().iter();
        used.map(|bucket| (*bucket, self.value(*bucket)))
    }

    pub fn value(&self, bucket: u16) -> i16 {
        ln_1p_256(self.counts[usize::from(bucket) % BUCKETS])
    }
}

pub(super) fn single(token: &Token) -> u16 {
    hash::top(token.hash, BITS) as u16
}

pub(super) fn double(left: &Token, right: &Token) -> u16 {
    let both = left.hash.rotate_left(17) ^ right.hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash::top(both, BITS) as u16
}
