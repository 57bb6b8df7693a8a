//! Tells which lists a word is in, by its hash.
//!
//! A perfect hash table: a prompt has a thousand words and the lists have a hundred, so comparing all with all would
//! take longer than the rest of the scoring.

use super::hash;

const BITS: u32 = 10;
const SLOTS: usize = 1 << BITS;

/// Up to sixteen lists.
pub(super) struct WordLists {
    /// The low half of a word's hash, and a bit for each list that has the word.
    slots: [(u32, u16); SLOTS],
    /// Seed with which no two words share a slot, so that a lookup checks only one.
    seed: u64,
}

impl WordLists {
    /// Tries seeds until one has no collision. Evaluated at compile time.
    pub(crate) const fn new(lists: &[&[&str]]) -> Self {
        let mut seed = 1;
        loop {
            if let Some(slots) = slots_for_seed(lists, seed) {
                return Self { slots, seed };
            }
            seed += 2;
        }
    }

    /// A bit for each list that has the word.
    pub(crate) fn of(&self, hash: u64) -> u16 {
        let (there, lists) = self.slots[slot(hash, self.seed)];
        if there == hash as u32 { lists } else { 0 }
    }
}

const fn slot(hash: u64, seed: u64) -> usize {
    hash::top(hash.wrapping_mul(seed), BITS) as usize
}

const fn slots_for_seed(lists: &[&[&str]], seed: u64) -> Option<[(u32, u16); SLOTS]> {
    let (mut slots, mut list) = ([(0, 0); SLOTS], 0);
    while list < lists.len() {
        let mut word = 0;
        while word < lists[list].len() {
            let hash = hash::word(lists[list][word]);
            let (there, before) = slots[slot(hash, seed)];
            if before != 0 && there != hash as u32 {
                return None;
            }
            slots[slot(hash, seed)] = (hash as u32, before | 1 << list);
            word += 1;
        }
        list += 1;
    }
    Some(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_in_the_lists_that_name_it() {
        static LISTS: WordLists =
            WordLists::new(&[&["one", "both"], &[], &["both", "incorrectly"]]);
        for (word, lists) in [("one", 1), ("both", 5), ("incorrectly", 4), ("none", 0)] {
            assert_eq!(LISTS.of(hash::word(word)), lists, "{word}");
        }
    }
}
