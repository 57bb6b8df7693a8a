//! Metrics that are counted with every request.

use std::{
    hash::{BuildHasher as _, Hash},
    sync::PoisonError,
};

use crossbeam_utils::sync::ShardedLock;

use crate::base::fast_map::{FastMap, RandomState};

/// Metrics by their labels, found by borrowed words. A family looks for its metric by labels that own theirs, which
/// takes a copy of every word for every look.
pub struct Known<L, M> {
    by_hash: ShardedLock<FastMap<u64, Vec<(L, M)>>>,
    hasher: RandomState,
}

impl<L, M> Default for Known<L, M> {
    fn default() -> Self {
        Self {
            by_hash: ShardedLock::default(),
            hasher: RandomState::default(),
        }
    }
}

impl<L, M> Known<L, M> {
    /// Counts with the metric of these words: `is_it` recognises its labels, and `made` makes it where it is new.
    pub fn count(
        &self,
        words: impl Hash,
        is_it: impl Fn(&L) -> bool,
        made: impl FnOnce() -> (L, M),
        count: impl FnOnce(&M),
    ) {
        let hash = self.hasher.hash_one(words);
        let known = self.by_hash.read().unwrap_or_else(PoisonError::into_inner);
        let mut same_hash = known.get(&hash).into_iter().flatten();
        if let Some((_, metric)) = same_hash.find(|(labels, _)| is_it(labels)) {
            return count(metric);
        }
        drop(known);
        let new = made();
        count(&new.1);
        let mut known = self.by_hash.write().unwrap_or_else(PoisonError::into_inner);
        let same_hash = known.entry(hash).or_default();
        // Somebody else may have been as quick: both have the same metric.
        if !same_hash.iter().any(|(labels, _)| is_it(labels)) {
            same_hash.push(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn each_is_made_once_and_found_by_its_words() {
        let (known, made) = (Known::<String, Cell<u32>>::default(), Cell::new(0));
        let count = |word: &str| {
            let new = || {
                made.set(made.get() + 1);
                (word.to_owned(), Cell::new(0))
            };
            let mut so_far = 0;
            known.count(
                word,
                |label| label == word,
                new,
                |counter| {
                    counter.set(counter.get() + 1);
                    so_far = counter.get();
                },
            );
            so_far
        };
        assert_eq!(
            [count("a"), count("b"), count("a"), count("a")],
            [1, 1, 2, 3]
        );
        assert_eq!(made.get(), 2);
    }

    #[test]
    fn words_of_the_same_hash_are_told_apart() {
        let known = Known::<&str, Cell<u32>>::default();
        let count = |word: &'static str| {
            let is_it = |label: &&str| *label == word;
            let add = |counter: &Cell<u32>| counter.set(counter.get() + 1);
            known.count(0, is_it, || (word, Cell::new(0)), add);
        };
        ["a", "b", "a"].into_iter().for_each(count);
        let by_hash = known.by_hash.into_inner().unwrap();
        let counted: Vec<_> = by_hash.into_values().flatten().collect();
        assert_eq!(counted, [("a", Cell::new(2)), ("b", Cell::new(1))]);
    }
}
