//! Counting a text from cut to cut: the quickest way that is certain, one pre-token after another.

use super::{
    ascii,
    block::{BLOCK, Block},
    kinds::{kind, may_compose},
    merge, pieces, recent,
    table::{Kind, WORD_SLOT},
    vocabulary::Vocabulary::{self, Cl100k, O200k},
    words,
};

/// A block, and what is read beyond it when its last word is looked up.
const WINDOW: usize = BLOCK + WORD_SLOT;

/// So many bytes of a request are merged, by each vocabulary's turn. Of what comes then and is in no table, bytes are
/// counted, which are never fewer than tokens: it bounds the time that a hostile request takes. English hardly needs
/// merging; of Chinese this is half a megabyte.
pub const MOST_MERGED: usize = 1 << 20;

/// The tokens of a text by family of tokenizers.
pub struct Tally {
    /// By cl100k, Llama 3 and Qwen 2.5: where they differ, the largest.
    pub cl100k: u64,
    pub o200k: u64,
    /// Whether it has characters that normalisation may change.
    pub may_compose: bool,
    /// How many bytes may still be merged.
    pub merging: usize,
}

impl Tally {
    #[cfg(test)]
    pub fn of(text: &str) -> Self {
        Self::merging(text, MOST_MERGED)
    }

    /// With at most so many bytes merged.
    pub fn merging(text: &str, most: usize) -> Self {
        let mut tally = Self {
            cl100k: 0,
            o200k: 0,
            may_compose: false,
            merging: most,
        };
        let bytes = text.as_bytes();
        let mut at = 0;
        // Both pre-tokenizers cut here, each time around.
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

    /// Adds words as far as the table has them, and returns how many bytes that are.
    #[inline]
    fn add_words(&mut self, text: &[u8]) -> usize {
        let mut at = 0;
        while let Some(window) = text[at..].first_chunk() {
            let length = self.add_window(window);
            at += length;
            // It was stopped by something else than the end of the block.
            if length < BLOCK - WORD_SLOT {
                return at;
            }
        }
        let rest = &text[at..];
        let mut window = [0; WINDOW];
        window[..rest.len()].copy_from_slice(rest);
        at + self.add_window(&window)
    }

    #[inline]
    fn add_window(&mut self, window: &[u8; WINDOW]) -> usize {
        let Some(block) = window.first_chunk() else {
            return 0;
        };
        let mut tokens = 0;
        let (length, marks) = Block::of(block).each_word(|start, end| {
            let bytes = window.get(start..).and_then(<[u8]>::first_chunk);
            let key = bytes.and_then(|bytes| words::key(bytes, end - start));
            let count = key.and_then(|key| words::count(key).or_else(|| recent::larger(key)));
            tokens += count.unwrap_or(0);
            count.is_some()
        });
        self.add_both(tokens + u64::from(marks));
        length
    }

    /// Adds a pre-token of ASCII, or all of a number, if both pre-tokenizers certainly cut behind it.
    fn add_ascii(&mut self, text: &[u8]) -> Option<usize> {
        let digits = ascii::digits(text);
        if digits > 0 {
            // A token each to Qwen; up to three are one to the others.
            self.cl100k += digits as u64;
            self.o200k += digits.div_ceil(3) as u64;
            return Some(digits);
        }
        let length = ascii::piece(text);
        if length == 1 {
            // Each byte is a token.
            self.add_both(1);
            return Some(1);
        }
        let piece = text.get(..length).filter(|piece| !piece.is_empty())?;
        let key = match text.first_chunk() {
            Some(bytes) => words::key(bytes, length),
            None => words::key_of(piece),
        };
        let known = key.and_then(words::count);
        let tokens = known.unwrap_or_else(|| self.larger(piece));
        self.add_both(tokens);
        Some(length)
    }

    /// Adds pre-tokens until both pre-tokenizers cut at the same place again, and returns how many bytes that are.
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

    /// Adds a pre-token of cl100k, as Llama 3 and Qwen 2.5 cut it if they make more of it.
    fn add_cl100k(&mut self, piece: &str, is_last: bool) {
        self.look_at(piece);
        let whole = self.merge(piece.as_bytes(), Cl100k);
        let cut = if starts_with(piece, Kind::Number) {
            // Each character is a pre-token to Qwen.
            let chars = piece.char_indices();
            chars
                .map(|(at, char)| self.merge(&piece.as_bytes()[at..at + char.len_utf8()], Cl100k))
                .sum()
        } else if is_last && piece.trim_start().is_empty() {
            // At the end of the text, both cut behind the last newline.
            let newline = piece.rfind(['\r', '\n']).map_or(0, |at| at + 1);
            let (before, behind) = piece.as_bytes().split_at(newline);
            self.merge(before, Cl100k) + self.merge(behind, Cl100k)
        } else {
            0
        };
        self.cl100k += whole.max(cut);
    }

    fn add_o200k(&mut self, piece: &str) {
        self.o200k += self.merge(piece.as_bytes(), O200k);
    }

    /// The tokens of a pre-token of both, by the vocabulary that makes more of it.
    fn larger(&mut self, piece: &[u8]) -> u64 {
        let cl100k = self.merge(piece, Cl100k);
        cl100k.max(self.merge(piece, O200k))
    }

    fn merge(&mut self, piece: &[u8], vocabulary: Vocabulary) -> u64 {
        let left = match self.merging.checked_sub(piece.len()) {
            Some(left) if piece.len() <= merge::LONGEST_MERGED => left,
            _ => return piece.len() as u64,
        };
        recent::count(piece, vocabulary, || {
            self.merging = left;
            merge::count(vocabulary.merges(), piece)
        })
    }

    fn look_at(&mut self, piece: &str) {
        self.may_compose |= piece.chars().any(may_compose);
    }
}

fn starts_with(piece: &str, kind_of_first: Kind) -> bool {
    piece
        .chars()
        .next()
        .is_some_and(|first| kind(first) == kind_of_first)
}
