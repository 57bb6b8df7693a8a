//! Where plain prose is among 64 bytes of a text: a bit for each byte, the first one's the lowest.

use wide::i8x64;

/// As many bytes as a number has bits.
pub const BLOCK: usize = 64;

/// Words of ASCII letters from a cut on, as far as both pre-tokenizers certainly cut alike.
pub struct Block {
    /// First bytes of words: of the space before the letters, if there is one.
    starts: u64,
    /// The bytes behind words.
    ends: u64,
    /// Marks or digits between a letter and a space, and newlines between letters: tokens by themselves.
    marks: u64,
    /// No word is known to end behind this.
    last: u32,
}

impl Block {
    #[inline]
    pub fn of(bytes: &[u8; BLOCK]) -> Self {
        let bytes = i8x64::new(bytes.map(u8::cast_signed));
        // Both ends are ASCII, so that bytes which are not count as less.
        let within = |low: u8, high: u8| {
            let from_low = bytes.simd_gt(i8x64::splat(low.cast_signed() - 1));
            let to_high = bytes.simd_lt(i8x64::splat(high.cast_signed() + 1));
            (from_low & to_high).to_bitmask()
        };
        let is = |byte: u8| bytes.simd_eq(i8x64::splat(byte.cast_signed())).to_bitmask();
        let (lower, upper) = (within(b'a', b'z'), within(b'A', b'Z'));
        let (letters, spaces) = (lower | upper, is(b' '));
        let (behind, before) = (letters << 1, letters >> 1);
        // Digits among them: one alone is a token as well.
        let marks = within(b'!', b'?') & behind & spaces >> 1;
        let newlines = is(b'\n') & behind & before;
        // Behind a word, these may belong to it: an apostrophe begins a contraction. A byte outside of ASCII has the
        // bit set that is looked at.
        let joins = is(b'\'') | bytes.to_bitmask();
        let spaces = spaces & before;
        // o200k cuts before a capital behind a small letter.
        let turns = upper & lower << 1;
        let plain = (letters | spaces | marks | newlines) & !(joins | turns);
        // A word that reaches the end of the block may go on behind it.
        let first_other = plain.trailing_ones().min(u64::BITS - 1);
        let joined = joins >> first_other & 1 == 1;
        Self {
            starts: spaces | newlines << 1 | letters & 1,
            ends: behind & !letters,
            marks: marks | newlines,
            last: first_other - u32::from(joined && first_other > 0),
        }
    }

    /// Calls `word` with where each word starts and ends, until it has enough. Returns how many bytes that were, and
    /// how many marks among them.
    #[inline]
    pub fn each_word(&self, mut word: impl FnMut(usize, usize) -> bool) -> (usize, u32) {
        let (mut starts, mut ends) = (self.starts, self.ends);
        let mut done = 0;
        while starts != 0 {
            let (start, end) = (starts.trailing_zeros(), ends.trailing_zeros());
            if end > self.last || !word(start as usize, end as usize) {
                break;
            }
            done = end + (self.marks >> end & 1) as u32;
            starts &= starts - 1;
            ends &= ends - 1;
        }
        let marks = self.marks & !u64::MAX.unbounded_shl(done);
        (done as usize, marks.count_ones())
    }
}
