//! Finds words in 64 bytes of text at once, as bit masks with one bit for each byte; the first byte has the lowest bit.

use wide::i8x64;

/// Bytes of a block: the bits of a `u64`.
pub(crate) const BLOCK: usize = 64;

/// The words of ASCII letters at the start of a block, as far as both pre-tokenizers certainly agree.
pub(crate) struct Block {
    /// The first byte of each word: the space before the letters, if there is one.
    starts: u64,
    /// The byte after each word.
    ends: u64,
    /// Single characters that are tokens by themselves: a mark or digit between a letter and a space, and a newline
    /// between letters.
    marks: u64,
    /// The position after which no word is certain to end.
    last: u32,
}

impl Block {
    #[inline]
    pub(crate) fn of(bytes: &[u8; BLOCK]) -> Self {
        let bytes = i8x64::new(bytes.map(u8::cast_signed));
        // Bytes outside of ASCII are negative, and so less than both bounds.
        let within = |low: u8, high: u8| {
            let from_low = bytes.simd_gt(i8x64::splat(low.cast_signed() - 1));
            let to_high = bytes.simd_lt(i8x64::splat(high.cast_signed() + 1));
            (from_low & to_high).to_bitmask()
        };
        let is = |byte: u8| bytes.simd_eq(i8x64::splat(byte.cast_signed())).to_bitmask();
        let (lower, upper) = (within(b'a', b'z'), within(b'A', b'Z'));
        let (letters, spaces) = (lower | upper, is(b' '));
        let (behind, before) = (letters << 1, letters >> 1);
        // The range includes digits: a single digit is a token as well.
        let marks = within(b'!', b'?') & behind & spaces >> 1;
        let newlines = is(b'\n') & behind & before;
        // After a word, these may belong to it: an apostrophe starts a contraction, and a byte outside of ASCII may be
        // part of a letter. The bit mask of the bytes has their highest bits, which only the latter have set.
        let joins = is(b'\'') | bytes.to_bitmask();
        let spaces = spaces & before;
        // o200k splits before a capital that follows a lowercase letter.
        let turns = upper & lower << 1;
        let plain = (letters | spaces | marks | newlines) & !(joins | turns);
        // A word that reaches the end of the block may continue after it.
        let first_other = plain.trailing_ones().min(u64::BITS - 1);
        let joined = joins >> first_other & 1 == 1;
        Self {
            starts: spaces | newlines << 1 | letters & 1,
            ends: behind & !letters,
            marks: marks | newlines,
            last: first_other - u32::from(joined && first_other > 0),
        }
    }

    /// Calls `word` with the start and end of each word until it returns `false`. Returns how many bytes the accepted
    /// words cover, and how many marks are among these.
    #[inline]
    pub(crate) fn each_word(&self, mut word: impl FnMut(usize, usize) -> bool) -> (usize, u32) {
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
