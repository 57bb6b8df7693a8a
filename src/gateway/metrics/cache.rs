//! Cache of metrics that are updated with every request.

use std::{
    hash::{BuildHasher as _, Hash},
    sync::PoisonError,
};

use crossbeam_utils::sync::ShardedLock;

use crate::base::fast_map::{FastMap, RandomState};

/// Metrics by their labels, looked up with borrowed strings. A `Family` takes owned labels, which would cost a copy
/// of every label value for every lookup.
pub(crate) struct MetricCache<L, M> {
    by_hash: ShardedLock<FastMap<u64, Vec<(L, M)>>>,
    hasher: RandomState,
}

impl<L, M> Default for MetricCache<L, M> {
    fn default() -> Self {
        Self {
            by_hash: ShardedLock::default(),
            hasher: RandomState::default(),
        }
    }
}

impl<L, M> MetricCache<L, M> {
    /// Updates the metric with these label values. `matches` compares cached labels with them, and `create` makes the
    /// metric if it is not cached yet.
    pub(crate) fn update(
        &self,
        values: impl Hash,
        matches: impl Fn(&L) -> bool,
        create: impl FnOnce() -> (L, M),
        update: impl FnOnce(&M),
    ) {
        let hash = self.hasher.hash_one(values);
        let cached = self.by_hash.read().unwrap_or_else(PoisonError::into_inner);
        let mut same_hash = cached.get(&hash).into_iter().flatten();
        if let Some((_, metric)) = same_hash.find(|(labels, _)| matches(labels)) {
            return update(metric);
        }
        drop(cached);
        let new = create();
        update(&new.1);
        let mut cached = self.by_hash.write().unwrap_or_else(PoisonError::into_inner);
        let same_hash = cached.entry(hash).or_default();
        // Another thread may have added it meanwhile; both got the same metric from the family.
        if !same_hash.iter().any(|(labels, _)| matches(labels)) {
            same_hash.push(new);
        }
    }
}

impl<L, M> MetricCache<L, M> {
    /// Shows every metric with its labels.
    pub(crate) fn for_each(&self, mut show: impl FnMut(&L, &M)) {
        let cached = self.by_hash.read().unwrap_or_else(PoisonError::into_inner);
        for (labels, metric) in cached.values().flatten() {
            show(labels, metric);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn each_metric_is_created_once_and_found_by_its_label() {
        let (cache, created) = (MetricCache::<String, Cell<u32>>::default(), Cell::new(0));
        let count = |value: &str| {
            let create = || {
                created.set(created.get() + 1);
                (value.to_owned(), Cell::new(0))
            };
            let mut total = 0;
            cache.update(
                value,
                |label| label == value,
                create,
                |counter| {
                    counter.set(counter.get() + 1);
                    total = counter.get();
                },
            );
            total
        };
        assert_eq!(
            [count("a"), count("b"), count("a"), count("a")],
            [1, 1, 2, 3]
        );
        assert_eq!(created.get(), 2);
    }

    #[test]
    fn labels_with_the_same_hash_are_told_apart() {
        let cache = MetricCache::<&str, Cell<u32>>::default();
        let count = |value: &'static str| {
            let matches = |label: &&str| *label == value;
            let add = |counter: &Cell<u32>| counter.set(counter.get() + 1);
            cache.update(0, matches, || (value, Cell::new(0)), add);
        };
        ["a", "b", "a"].into_iter().for_each(count);
        let by_hash = cache.by_hash.into_inner().unwrap();
        let counted: Vec<_> = by_hash.into_values().flatten().collect();
        assert_eq!(counted, [("a", Cell::new(2)), ("b", Cell::new(1))]);
    }
}
