//! Layout of the tables that `build.rs` writes and the estimate reads. Both compile this file.
//!
//! The tables are read-only data of the program, in little-endian order: nothing is parsed or copied at the start, and
//! the system loads only the pages that are used. A key is always compared in full, never only by its hash, so that no
//! text can be constructed that gets the count of another.

/// Aligns a table, so that no entry is on two cache lines.
#[repr(align(64))]
pub(crate) struct Aligned<T>(pub T);

/// Bits of a token's number. The number is the token's rank; the first 256 are the bytes.
pub(crate) const TOKEN_BITS: u32 = 18;
const TOKEN_MASK: u64 = (1 << TOKEN_BITS) - 1;

/// One entry of a vocabulary's table: left token, right token and the token that they merge into, [`TOKEN_BITS`] each.
pub(crate) type PairSlot = [u8; 8];
/// An empty slot. It is larger than any three tokens.
pub(crate) const NO_PAIR: u64 = u64::MAX;

/// The merges of one byte-pair vocabulary: an open-addressing hash table whose number of slots is a power of two.
#[derive(Clone, Copy)]
pub(crate) struct Merges<'a>(pub &'a [PairSlot]);

impl Merges<'_> {
    /// The token that two neighbours merge into, which is also the rank of the merge.
    #[inline]
    pub(crate) fn merged(self, left: u32, right: u32) -> Option<u32> {
        let key = pair_key(left, right);
        let mask = self.0.len() - 1;
        let mut at = pair_hash(key) & mask;
        loop {
            let slot = u64::from_le_bytes(self.0[at]);
            if slot >> TOKEN_BITS == key {
                return u32::try_from(slot & TOKEN_MASK).ok();
            }
            if slot == NO_PAIR {
                return None;
            }
            at = (at + 1) & mask;
        }
    }
}

/// The key of a pair: both tokens in one number.
pub(crate) fn pair_key(left: u32, right: u32) -> u64 {
    u64::from(left) << TOKEN_BITS | u64::from(right)
}

/// The hash of a pair; a table uses its lower bits.
pub(crate) fn pair_hash(key: u64) -> usize {
    (key.wrapping_mul(MULTIPLIER) >> 40) as usize
}

/// Multiplier of both hashes. It is odd and its bits are spread, so that the upper half of a product depends on all
/// bits of the other factor.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// A slot of the word table: the word's bytes, then zeros; the last byte is the number of its tokens.
pub(crate) type WordSlot = [u8; WORD_SLOT];
pub(crate) const WORD_SLOT: usize = 16;
/// Longest word of the table, in bytes.
pub(crate) const LONGEST_WORD: usize = WORD_SLOT - 1;
/// How many slots a word may be in: those of one cache line.
pub(crate) const WORD_PROBES: usize = 4;
/// Slots of the word table; must be a power of two.
pub(crate) const WORD_SLOTS: usize = 1 << 17;

/// The first of the slots that a word may be in; the others differ from it in the lowest bits.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "as many bits are left as the table has"
)]
pub(crate) fn word_hash(word: u128) -> usize {
    let (low, high) = halves(word);
    let product = (low ^ high.rotate_left(29)).wrapping_mul(MULTIPLIER);
    (product >> (u64::BITS - WORD_SLOTS.ilog2())) as usize
}

/// The first eight bytes of a slot and the others.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the truncated bits are the other half"
)]
pub(crate) fn halves(slot: u128) -> (u64, u64) {
    (slot as u64, (slot >> u64::BITS) as u64)
}

/// The class of a character, as far as pre-tokenizers distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Punctuation, symbols, control characters and everything unassigned.
    Other,
    /// Lu and Lt.
    Upper,
    /// Ll.
    Lower,
    /// Lm and Lo: letters of scripts without case.
    Letter,
    /// M: combining marks.
    Mark,
    /// N: digits, and numbers of every script.
    Number,
    /// White space except `\r` and `\n`.
    Space,
    /// `\r` and `\n`.
    Newline,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub(crate) const ALL: [Self; 8] = [
        Self::Other,
        Self::Upper,
        Self::Lower,
        Self::Letter,
        Self::Mark,
        Self::Number,
        Self::Space,
        Self::Newline,
    ];
}

/// The bits of an entry that hold the number of its kind.
pub(crate) const KIND_MASK: u8 = 7;
/// The bit that is set if normalization (NFC) may change or reorder the character.
pub(crate) const MAY_COMPOSE: u8 = 8;

/// Characters per block of the table of kinds. The table starts with the block number for each run of this many
/// characters, and the distinct blocks follow.
pub(crate) const KIND_BLOCK: usize = 128;
pub(crate) const KIND_BLOCKS: usize = 0x11_0000 / KIND_BLOCK;
