//! Table of the token counts of common words, so that these need no merging.

use super::table::{
    Aligned, LONGEST_WORD, WORD_PROBES, WORD_SLOT, WORD_SLOTS, WordSlot, halves, word_hash,
};

static WORDS: Aligned<[u8; WORD_SLOTS * WORD_SLOT]> =
    Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/words")));

/// Bit masks of the first bytes of a slot, by their number.
const FIRST: [u128; WORD_SLOT] = {
    let mut masks = [0; WORD_SLOT];
    let mut length = 1;
    while length < WORD_SLOT {
        masks[length] = masks[length - 1] << 8 | 0xFF;
        length += 1;
    }
    masks
};

/// The lookup key of the first `length` of these bytes; `None` if that is too long for a word.
#[inline]
pub(crate) fn key(bytes: &WordSlot, length: usize) -> Option<u128> {
    let mask = FIRST.get(length)?;
    Some(u128::from_le_bytes(*bytes) & mask)
}

/// The lookup key of a pre-token; `None` if it is empty, too long or ends with a zero byte.
#[inline]
pub(crate) fn key_of(piece: &[u8]) -> Option<u128> {
    piece.last().filter(|last| **last != 0)?;
    let mut bytes = [0; WORD_SLOT];
    bytes[..LONGEST_WORD]
        .get_mut(..piece.len())?
        .copy_from_slice(piece);
    Some(u128::from_le_bytes(bytes))
}

/// The larger token count of a word in the two vocabularies; `None` if the table does not have it.
#[inline]
pub(crate) fn count(key: u128) -> Option<u64> {
    let slots: &[WordSlot] = WORDS.0.as_chunks().0;
    let first = word_hash(key);
    (0..WORD_PROBES).find_map(|probe| {
        let (low, high) = halves(u128::from_le_bytes(slots[first ^ probe]) ^ key);
        // The slot of this word differs from the key only in the last byte, which is the count.
        (low | high << 8 == 0).then_some(high >> (u64::BITS - 8))
    })
}
