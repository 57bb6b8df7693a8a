//! The common words: how many tokens one has, without merging.

use super::table::{
    Aligned, LONGEST_WORD, WORD_PROBES, WORD_SLOT, WORD_SLOTS, WordSlot, halves, word_hash,
};

static WORDS: Aligned<[u8; WORD_SLOTS * WORD_SLOT]> =
    Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/words")));

/// Ones for the first bytes of a word.
const FIRST: [u128; WORD_SLOT] = {
    let mut masks = [0; WORD_SLOT];
    let mut length = 1;
    while length < WORD_SLOT {
        masks[length] = masks[length - 1] << 8 | 0xFF;
        length += 1;
    }
    masks
};

/// The first bytes of some, as a word is looked up; `None` if they are too many for a word.
#[inline]
pub fn key(bytes: &WordSlot, length: usize) -> Option<u128> {
    let mask = FIRST.get(length)?;
    Some(u128::from_le_bytes(*bytes) & mask)
}

/// A pre-token as it is looked up, if it is short enough and does not end with a zero itself.
#[inline]
pub fn key_of(piece: &[u8]) -> Option<u128> {
    piece.last().filter(|last| **last != 0)?;
    let mut bytes = [0; WORD_SLOT];
    bytes[..LONGEST_WORD]
        .get_mut(..piece.len())?
        .copy_from_slice(piece);
    Some(u128::from_le_bytes(bytes))
}

/// The tokens of a word, the larger number of both vocabularies; `None` where the table does not have it.
#[inline]
pub fn count(key: u128) -> Option<u64> {
    let slots: &[WordSlot] = WORDS.0.as_chunks().0;
    let first = word_hash(key);
    (0..WORD_PROBES).find_map(|probe| {
        let (low, high) = halves(u128::from_le_bytes(slots[first ^ probe]) ^ key);
        // If it is this word's slot, they differ only in the last byte.
        (low | high << 8 == 0).then_some(high >> (u64::BITS - 8))
    })
}
