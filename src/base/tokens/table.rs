//! Tables that `build.rs` writes and the estimate reads: one layout for both, since both compile this file.
//!
//! They are read-only data of the program, in little-endian order: nothing is parsed or copied at the start, and the
//! system loads the pages that are used. A key is always compared in full, never only its hash, so that no text can be
//! made up whose tokens are mistaken for others.

/// So that no entry lies on two cache lines.
#[repr(align(64))]
pub struct Aligned<T>(pub T);

/// A token has a number below this many bits: its rank, and for the first 256 the byte that it is.
pub const TOKEN_BITS: u32 = 18;
const TOKEN_MASK: u64 = (1 << TOKEN_BITS) - 1;

/// One entry of a vocabulary's table: left token, right token and the token that they merge into, [`TOKEN_BITS`] each.
pub type PairSlot = [u8; 8];
/// No entry: larger than three tokens can be.
pub const NO_PAIR: u64 = u64::MAX;

/// The merges of one byte-pair vocabulary, as an open-addressing table with a power of two of slots.
#[derive(Clone, Copy)]
pub struct Merges<'a>(pub &'a [PairSlot]);

impl Merges<'_> {
    /// The token that two neighbours merge into, which is the rank of the merge as well.
    #[inline]
    pub fn merged(self, left: u32, right: u32) -> Option<u32> {
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

/// Both tokens of a pair in one number.
pub fn pair_key(left: u32, right: u32) -> u64 {
    u64::from(left) << TOKEN_BITS | u64::from(right)
}

/// Of which a table uses the lower bits.
pub fn pair_hash(key: u64) -> usize {
    (key.wrapping_mul(MULTIPLIER) >> 40) as usize
}

/// Odd, and with bits all over: the upper half of a product depends on all bits of the other factor.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// A word as it is looked up: its bytes, then zeros. The last byte is the number of its tokens.
pub type WordSlot = [u8; WORD_SLOT];
pub const WORD_SLOT: usize = 16;
/// A word may have this many bytes.
pub const LONGEST_WORD: usize = WORD_SLOT - 1;
/// How many slots a word may be in: as many as lie on one cache line.
pub const WORD_PROBES: usize = 4;
/// As a power of two.
pub const WORD_SLOTS: usize = 1 << 17;

/// The first of the slots that a word may be in; the others differ from it in the lowest bits.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "as many bits are left as the table has"
)]
pub fn word_hash(word: u128) -> usize {
    let (low, high) = halves(word);
    let product = (low ^ high.rotate_left(29)).wrapping_mul(MULTIPLIER);
    (product >> (u64::BITS - WORD_SLOTS.ilog2())) as usize
}

/// The first eight bytes of a slot and the others.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "what is cut off is the other half"
)]
pub fn halves(slot: u128) -> (u64, u64) {
    (slot as u64, (slot >> u64::BITS) as u64)
}

/// What a character is to a pre-tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
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
    /// White space but for `\r` and `\n`.
    Space,
    /// `\r` and `\n`.
    Newline,
}

impl Kind {
    /// By their number.
    pub const ALL: [Self; 8] = [
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

/// The bits of an entry that are the number of its kind.
pub const KIND_MASK: u8 = 7;
/// The bit of a character that normalisation (NFC) may change or move.
pub const MAY_COMPOSE: u8 = 8;

/// Characters whose kinds lie together in the table: first the number of its block for each, then the blocks.
pub const KIND_BLOCK: usize = 128;
pub const KIND_BLOCKS: usize = 0x11_0000 / KIND_BLOCK;
