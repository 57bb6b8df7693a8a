//! Counts the tokens of a text, one pre-token after another, each on the fastest path that is exact.

use super::{
    ascii,
    block::{BLOCK, Block},
    kinds::{kind, may_compose},
    merge, piece_cache, pieces,
    table::{Kind, WORD_SLOT},
    vocabulary::Vocabulary::{self, Cl100k, O200k},
    word_table,
};

/// Bytes of a block and those after it that are read when its last word is looked up.
const WINDOW: usize = BLOCK + WORD_SLOT;

/// How many bytes of a request may be merged, counted once for each vocabulary. When it is used up, pre-tokens that
/// are in no table or cache count one token per byte, which is never too few. It bounds the time that a hostile
/// request can cost. English text hardly needs merging; for Chinese the budget covers half a megabyte.
pub(crate) const MERGE_BUDGET: usize = 1 << 20;

/// The tokens of a text, for each of the two families of tokenizers.
pub(crate) struct Tally {
    /// The largest count of cl100k, Llama 3 and Qwen 2.5.
    pub cl100k: u64,
    pub o200k: u64,
    /// Whether the text has characters that normalization may change.
    pub may_compose: bool,
    /// How many bytes may still be merged.
    pub budget: usize,
}

impl Tally {
    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Self {
        Self::with_budget(text, MERGE_BUDGET)
    }

    /// Counts a text, merging at most `budget` bytes.
    pub(crate) fn with_budget(text: &str, budget: usize) -> Self {
        let mut tally = Self {
            cl100k: 0,
            o200k: 0,
            may_compose: false,
            budget,
        };
        let bytes = text.as_bytes();
        let mut at = 0;
        // At the start of each iteration, both pre-tokenizers split the text at `at`.
        while at < bytes.len() {
            if ascii::begins_word(&bytes[at..]) {
                at += tally.add_words(&bytes[at..]);
            }
            if at < bytes.len() {
                let length = tally.add_ascii(&bytes[at..]);
                at += length.unwrap_or_else(|| tally.add_pieces(&text[at..]));
            }
        }
        tally
    }

    fn add_both(&mut self, tokens: u64) {
        self.cl100k += tokens;
        self.o200k += tokens;
    }

    /// Adds the leading words that are in the word table, and returns their length in bytes.
    #[inline]
    fn add_words(&mut self, text: &[u8]) -> usize {
        let mut at = 0;
        while let Some(window) = text[at..].first_chunk() {
            let length = self.add_window(window);
            at += length;
            // Something other than the end of the block stopped it.
            if length < BLOCK - WORD_SLOT {
                return at;
            }
        }
        let rest = &text[at..];
        let mut window = [0; WINDOW];
        window[..rest.len()].copy_from_slice(rest);
        at + self.add_window(&window)
    }

    /// Adds the words of the block at the start of `window`, and returns their length in bytes.
    #[inline]
    fn add_window(&mut self, window: &[u8; WINDOW]) -> usize {
        let Some(block) = window.first_chunk() else {
            return 0;
        };
        let mut tokens = 0;
        let (length, marks) = Block::of(block).each_word(|start, end| {
            let bytes = window.get(start..).and_then(<[u8]>::first_chunk);
            let key = bytes.and_then(|bytes| word_table::key(bytes, end - start));
            let count =
                key.and_then(|key| word_table::count(key).or_else(|| piece_cache::larger(key)));
            tokens += count.unwrap_or(0);
            count.is_some()
        });
        self.add_both(tokens + u64::from(marks));
        length
    }

    /// Adds an ASCII pre-token, or a whole number, if both pre-tokenizers certainly split after it. Returns its length.
    fn add_ascii(&mut self, text: &[u8]) -> Option<usize> {
        let digits = ascii::digits(text);
        if digits > 0 {
            // Each digit is a token for Qwen; up to three are one token for the others.
            self.cl100k += digits as u64;
            self.o200k += digits.div_ceil(3) as u64;
            return Some(digits);
        }
        let length = ascii::piece(text);
        if length == 1 {
            // Each single byte is a token in both vocabularies.
            self.add_both(1);
            return Some(1);
        }
        let piece = text.get(..length).filter(|piece| !piece.is_empty())?;
        let key = match text.first_chunk() {
            Some(bytes) => word_table::key(bytes, length),
            None => word_table::key_of(piece),
        };
        let known = key.and_then(word_table::count);
        let tokens = known.unwrap_or_else(|| self.larger(piece));
        self.add_both(tokens);
        Some(length)
    }

    /// Adds pre-tokens until both pre-tokenizers split the text at one position again, and returns that position.
    fn add_pieces(&mut self, text: &str) -> usize {
        let (mut cl100k, mut o200k) = (pieces::cl100k(text), pieces::o200k(text));
        self.add_cl100k(&text[..cl100k], cl100k == text.len());
        self.add_o200k(&text[..o200k]);
        while cl100k != o200k {
            if cl100k < o200k {
                let rest = &text[cl100k..];
                let length = pieces::cl100k(rest);
                self.add_cl100k(&rest[..length], length == rest.len());
                cl100k += length;
            } else {
                let rest = &text[o200k..];
                let length = pieces::o200k(rest);
                self.add_o200k(&rest[..length]);
                o200k += length;
            }
        }
        cl100k
    }

    /// Adds a pre-token of cl100k. If Llama 3 or Qwen 2.5 split it further and get more tokens, adds their count.
    fn add_cl100k(&mut self, piece: &str, is_last: bool) {
        self.check_composition(piece);
        let whole = self.merge(piece.as_bytes(), Cl100k);
        let split = if starts_with(piece, Kind::Number) {
            // Each character is a pre-token for Qwen.
            let chars = piece.char_indices();
            chars
                .map(|(at, char)| self.merge(&piece.as_bytes()[at..at + char.len_utf8()], Cl100k))
                .sum()
        } else if is_last && piece.trim_start().is_empty() {
            // At the end of the text, both split after the last newline.
            let newline = piece.rfind(['\r', '\n']).map_or(0, |at| at + 1);
            let (before, behind) = piece.as_bytes().split_at(newline);
            self.merge(before, Cl100k) + self.merge(behind, Cl100k)
        } else {
            0
        };
        self.cl100k += whole.max(split);
    }

    fn add_o200k(&mut self, piece: &str) {
        self.o200k += self.merge(piece.as_bytes(), O200k);
    }

    /// The larger token count of the two vocabularies, for a pre-token of both.
    fn larger(&mut self, piece: &[u8]) -> u64 {
        let cl100k = self.merge(piece, Cl100k);
        cl100k.max(self.merge(piece, O200k))
    }

    /// The token count of a pre-token, or its bytes if it is too long or the budget is used up.
    fn merge(&mut self, piece: &[u8], vocabulary: Vocabulary) -> u64 {
        let left = match self.budget.checked_sub(piece.len()) {
            Some(left) if piece.len() <= merge::LONGEST_MERGED => left,
            _ => return piece.len() as u64,
        };
        piece_cache::count(piece, vocabulary, || {
            self.budget = left;
            merge::count(vocabulary.merges(), piece)
        })
    }

    /// Records whether normalization may change the pre-token.
    fn check_composition(&mut self, piece: &str) {
        self.may_compose |= piece.chars().any(may_compose);
    }
}

fn starts_with(piece: &str, kind_of_first: Kind) -> bool {
    piece
        .chars()
        .next()
        .is_some_and(|first| kind(first) == kind_of_first)
}
