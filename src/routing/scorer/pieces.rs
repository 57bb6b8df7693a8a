//! Splits words into the pieces of a `WordPiece` vocabulary.
//!
//! The vocabulary consists of 32-bit fingerprints: splitting a word needs only hashes, not the spelling of the pieces.

use super::{
    hash,
    text::{Reading, load_u64, low_bytes},
    token::{Kind, Token},
};

/// Dimension of the embeddings.
pub(crate) const DIM: usize = 64;
/// The most bytes of a piece; the few longer ones are found only as whole words.
const MAX_PIECE: usize = 16;
/// Longer words are not split: they are noise, such as a key or a line of base64.
const MAX_WORD: usize = 64;
const FREE: u32 = u32::MAX;
/// Initial hash of pieces within a word, which vocabularies mark with `##`.
const WITHIN: u64 = hash::word("##");

/// The fingerprint of a piece at the start of a word or, if `within`, inside one.
pub fn fingerprint(piece: &str, within: bool) -> u32 {
    let start = if within { WITHIN } else { hash::EMPTY };
    print(hash::of(start, piece.as_bytes()))
}

const fn print(hash: u64) -> u32 {
    hash::top(hash, 32) as u32
}

/// A hash table from fingerprints to the index of the piece.
pub struct Vocabulary {
    /// Open addressing with linear probing: fingerprint and index of the piece.
    slots: Vec<(u32, u32)>,
}

impl Vocabulary {
    pub(crate) fn new(fingerprints: &[u32]) -> Self {
        let mut slots = vec![(0, FREE); (fingerprints.len() * 2).next_power_of_two()];
        let mask = slots.len() - 1;
        for (&print, index) in fingerprints.iter().zip(0..) {
            let mut at = print as usize & mask;
            while slots[at].1 != FREE {
                at = (at + 1) & mask;
            }
            slots[at] = (print, index);
        }
        Self { slots }
    }

    fn find(&self, print: u32) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = print as usize & mask;
        loop {
            match self.slots[at] {
                (_, FREE) => return None,
                (there, index) if there == print => return Some(index),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Splits all words of a prompt into pieces.
    pub(super) fn split(&self, reading: &Reading, pieces: &mut Vec<u32>) {
        pieces.clear();
        for token in reading.tokens() {
            if token.kind != Kind::Word {
                continue;
            }
            match self.find(print(token.hash)) {
                Some(piece) => pieces.push(piece),
                // Words that are not ASCII are not split: the vocabulary has only single letters of most other scripts.
                None if token.ascii() && token.len() <= MAX_WORD => {
                    self.split_word(reading, token, pieces);
                }
                None => {}
            }
        }
    }

    /// Splits a word greedily, the longest piece first. A word that cannot be split completely has no pieces.
    fn split_word(&self, reading: &Reading, token: &Token, pieces: &mut Vec<u32>) {
        let (word, before) = (reading.from(token), pieces.len());
        // The part from an apostrophe on is ignored: no piece contains one.
        let text = reading.text(token);
        let end = text.find('\'').unwrap_or(text.len());
        let (mut start, mut hash) = (0, hash::EMPTY);
        while start < end {
            let found = self.longest(word, start, end - start, hash);
            let Some((piece, length)) = found else {
                return pieces.truncate(before);
            };
            pieces.push(piece);
            (start, hash) = (start + length, WITHIN);
        }
    }

    /// The longest piece at `start`, and its length.
    fn longest(&self, word: &[u8], start: usize, rest: usize, hash: u64) -> Option<(u32, usize)> {
        // A piece has at most 16 bytes, so the hash of any prefix needs one or two steps.
        let first = load_u64(word, start);
        let second = load_u64(word, start + 8);
        let whole = hash::step(hash, first);
        let mut lengths = (1..=rest.min(MAX_PIECE)).rev();
        lengths.find_map(|length| {
            let hash = if length > 8 {
                hash::step(whole, low_bytes(second, length - 8))
            } else {
                hash::step(hash, low_bytes(first, length))
            };
            self.find(print(hash)).map(|piece| (piece, length))
        })
    }
}
