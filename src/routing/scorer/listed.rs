//! Lists of words, found by their hash.
//!
//! A prompt has a thousand words and the lists a hundred: comparing all with all would take longer
//! than everything else.

use super::hash;

const BITS: u32 = 10;
const SLOTS: usize = 1 << BITS;

/// Up to sixteen lists.
pub(super) struct Listed {
    /// Part of a word's hash, and a bit for each list it is in.
    slots: [(u32, u16); SLOTS],
    /// With it every word has a slot of its own, so that there is only one to look at.
    seed: u64,
}

impl Listed {
    /// Tries one seed after the other; this happens when the program is built.
    pub const fn new(lists: &[&[&str]]) -> Self {
        let mut seed = 1;
        loop {
            if let Some(slots) = arranged(lists, seed) {
                return Self { slots, seed };
            }
            seed += 2;
        }
    }

    /// A bit for each list the word is in.
    pub fn of(&self, hash: u64) -> u16 {
        let (there, lists) = self.slots[slot(hash, self.seed)];
        if there == hash as u32 { lists } else { 0 }
    }
}

const fn slot(hash: u64, seed: u64) -> usize {
    hash::top(hash.wrapping_mul(seed), BITS) as usize
}

const fn arranged(lists: &[&[&str]], seed: u64) -> Option<[(u32, u16); SLOTS]> {
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
        static LISTED: Listed = Listed::new(&[&["one", "both"], &[], &["both", "incorrectly"]]);
        for (word, lists) in [("one", 1), ("both", 5), ("incorrectly", 4), ("none", 0)] {
            assert_eq!(LISTED.of(hash::word(word)), lists, "{word}");
        }
    }
}
