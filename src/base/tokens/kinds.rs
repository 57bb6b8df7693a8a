//! The classes of characters that pre-tokenizers distinguish.

use super::table::{KIND_BLOCK, KIND_BLOCKS, KIND_MASK, Kind, MAY_COMPOSE};

static KINDS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kinds"));

#[inline]
pub(crate) fn kind(char: char) -> Kind {
    Kind::ALL[usize::from(entry(char) & KIND_MASK)]
}

/// Whether normalization (NFC) may change the character or reorder it with its neighbours.
#[inline]
pub(crate) fn may_compose(char: char) -> bool {
    entry(char) & MAY_COMPOSE != 0
}

#[inline]
fn entry(char: char) -> u8 {
    let char = char as usize;
    let block = usize::from(KINDS[char / KIND_BLOCK]);
    KINDS[KIND_BLOCKS + block * KIND_BLOCK + char % KIND_BLOCK]
}
