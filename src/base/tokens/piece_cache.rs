//! Pre-tokens that a thread has merged lately. Prompts come again and again, and so do the words in them.

use std::cell::Cell;

use super::{
    table::{LONGEST_WORD, word_hash},
    vocabulary::Vocabulary,
    words::key_of,
};

/// How many a thread remembers: 32 KiB of them.
const REMEMBERED: usize = 2048;
/// Where they begin, in bits.
const COUNTS: usize = 8 * LONGEST_WORD;

thread_local! {
    /// Bytes of a pre-token as in the table of words. In the last byte are two numbers of tokens, one for each
    /// vocabulary and four bits long, which are zero where it has not been merged yet.
    static RECENT: [Cell<u128>; REMEMBERED] = const { [const { Cell::new(0) }; REMEMBERED] };
}

/// The tokens of a word that this thread has merged with both vocabularies: the larger number.
#[inline]
pub fn larger(key: u128) -> Option<u64> {
    RECENT.with(|recent| {
        let found = recent[word_hash(key) % REMEMBERED].get();
        let counts = (found >> COUNTS) as u64;
        let (cl100k, o200k) = (counts & 0xF, counts >> 4);
        let is_known = (found ^ key) << 8 == 0 && cl100k > 0 && o200k > 0;
        is_known.then_some(cl100k.max(o200k))
    })
}

/// The tokens of a short pre-token as this thread merged it before, or as `merge` counts them now.
pub fn count(piece: &[u8], vocabulary: Vocabulary, merge: impl FnOnce() -> u64) -> u64 {
    let Some(key) = key_of(piece) else {
        return merge();
    };
    let shift = COUNTS + 4 * vocabulary as usize;
    RECENT.with(|recent| {
        let slot = &recent[word_hash(key) % REMEMBERED];
        let mut found = slot.get();
        if (found ^ key) << 8 != 0 {
            found = key;
        }
        match (found >> shift & 0xF) as u64 {
            0 => {
                // At most as many as it has bytes, which are fifteen.
                let count = merge();
                slot.set(found | u128::from(count) << shift);
                count
            }
            count => count,
        }
    })
}
