//! Cache of the token counts of short pre-tokens, one for each thread. Prompts are sent repeatedly, and so are their
//! words.

use std::cell::Cell;

use super::{
    table::{LONGEST_WORD, word_hash},
    vocabulary::Vocabulary,
    word_table::key_of,
};

/// Slots for each thread: 32 KiB.
const SLOTS: usize = 2048;
/// The bit at which the counts start in a slot.
const COUNTS: usize = 8 * LONGEST_WORD;

thread_local! {
    /// Each slot has the bytes of a pre-token, as in the word table. The last byte has two counts of four bits, one for
    /// each vocabulary; 0 means that the pre-token was not merged with it yet.
    static CACHE: [Cell<u128>; SLOTS] = const { [const { Cell::new(0) }; SLOTS] };
}

/// The larger token count of a word, if this thread has merged it with both vocabularies.
#[inline]
pub(crate) fn larger(key: u128) -> Option<u64> {
    CACHE.with(|cache| {
        let found = cache[word_hash(key) % SLOTS].get();
        let counts = (found >> COUNTS) as u64;
        let (cl100k, o200k) = (counts & 0xF, counts >> 4);
        let is_known = (found ^ key) << 8 == 0 && cl100k > 0 && o200k > 0;
        is_known.then_some(cl100k.max(o200k))
    })
}

/// The token count of a pre-token: from the cache, or counted by `merge` and then cached if it is short.
pub(crate) fn count(piece: &[u8], vocabulary: Vocabulary, merge: impl FnOnce() -> u64) -> u64 {
    let Some(key) = key_of(piece) else {
        return merge();
    };
    let shift = COUNTS + 4 * vocabulary as usize;
    CACHE.with(|cache| {
        let slot = &cache[word_hash(key) % SLOTS];
        let mut found = slot.get();
        if (found ^ key) << 8 != 0 {
            found = key;
        }
        match (found >> shift & 0xF) as u64 {
            0 => {
                // At most as many as the pre-token's bytes, which are fifteen.
                let count = merge();
                slot.set(found | u128::from(count) << shift);
                count
            }
            count => count,
        }
    })
}
