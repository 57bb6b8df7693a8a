//! Words cut into the pieces of a vocabulary, and what those pieces mean together.
//!
//! The vocabulary is kept as fingerprints: to be cut, a word need not be spelt out anywhere.

use super::{
    hash,
    text::{Reading, eight, low},
    token::{Kind, Token},
};

/// Numbers per piece.
pub const DIM: usize = 64;
/// How long a piece of a word can be, in bytes; the few that are longer are found as whole words
/// only.
const LONGEST_PIECE: usize = 16;
/// A longer word is noise, such as a key or a line of base64.
const LONGEST_WORD: usize = 64;
const FREE: u32 = u32::MAX;
/// Where the hash of a piece within a word (`##` in vocabularies) starts.
const WITHIN: u64 = hash::word("##");

/// The fingerprint of a piece: at the start of a word, or within one.
pub fn fingerprint(piece: &str, within: bool) -> u32 {
    let start = if within { WITHIN } else { hash::EMPTY };
    print(hash::of(start, piece.as_bytes()))
}

const fn print(hash: u64) -> u32 {
    hash::top(hash, 32) as u32
}

/// Which fingerprints there are, and the place of each.
pub struct Vocabulary {
    /// Open addressing: a fingerprint stands at the first free slot from its own on.
    slots: Vec<(u32, u32)>,
}

impl Vocabulary {
    pub fn new(fingerprints: &[u32]) -> Self {
        let mut slots = vec![(0, FREE); (fingerprints.len() * 2).next_power_of_two()];
        let mask = slots.len() - 1;
        for (&print, place) in fingerprints.iter().zip(0..) {
            let mut at = print as usize & mask;
            while slots[at].1 != FREE {
                at = (at + 1) & mask;
            }
            slots[at] = (print, place);
        }
        Self { slots }
    }

    fn find(&self, print: u32) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = print as usize & mask;
        loop {
            match self.slots[at] {
                (_, FREE) => return None,
                (there, place) if there == print => return Some(place),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// The pieces of every word that is read.
    pub(super) fn cut(&self, reading: &Reading, pieces: &mut Vec<u32>) {
        pieces.clear();
        for token in reading.tokens() {
            if token.kind != Kind::Word {
                continue;
            }
            match self.find(print(token.hash)) {
                Some(piece) => pieces.push(piece),
                // Of most other scripts the vocabulary has letters only, and those mean nothing.
                None if token.ascii() && token.len() <= LONGEST_WORD => {
                    self.cut_word(reading, token, pieces);
                }
                None => {}
            }
        }
    }

    /// The longest piece first, then the longest of the rest. A word with a part that is in no
    /// piece has none.
    fn cut_word(&self, reading: &Reading, token: &Token, pieces: &mut Vec<u32>) {
        let (word, before) = (reading.from(token), pieces.len());
        // What follows an apostrophe is an ending: no piece has one.
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

    /// The longest piece at a place of a word, and its length.
    fn longest(&self, word: &[u8], start: usize, rest: usize, hash: u64) -> Option<(u32, usize)> {
        // Up to sixteen bytes, so that the hash of any beginning is one or two steps away.
        let first = eight(word, start);
        let second = eight(word, start + 8);
        let whole = hash::step(hash, first);
        let mut lengths = (1..=rest.min(LONGEST_PIECE)).rev();
        lengths.find_map(|length| {
            let hash = if length > 8 {
                hash::step(whole, low(second, length - 8))
            } else {
                hash::step(hash, low(first, length))
            };
            self.find(print(hash)).map(|piece| (piece, length))
        })
    }
}
