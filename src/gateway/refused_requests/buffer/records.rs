//! Records that wait to be written, by owner, in bounded memory.
//!
//! An owner is an account, or the keys of requests whose account is not known yet. Each has room for as many records as
//! are kept of an account, so that a burst loses none. What all have together is bounded in bytes: beyond that the owners
//! with the most give up their oldest records: a client with many keys takes no room from accounts with few records.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use crate::backoffice::{BLOCKED, KEPT_OF_ACCOUNT, RefusedRequest};

/// Most records of an owner that was refused for having been refused too often: what it did before matters more.
pub(super) const RECORDS_OF_BLOCKED: usize = 5;
/// Most owners at a time. Records of further ones are dropped; they are counted nevertheless.
pub(super) const MAX_OWNERS: usize = 2_000;

pub(super) struct Records<K> {
    of: HashMap<K, Owned>,
    bytes: usize,
    max_bytes: usize,
}

/// The records of one owner, the oldest first.
#[derive(Default)]
struct Owned {
    records: VecDeque<RefusedRequest>,
    bytes: usize,
    /// How many of them have the code [`BLOCKED`].
    blocked: usize,
}

impl<K: Eq + Hash> Records<K> {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            of: HashMap::new(),
            bytes: 0,
            max_bytes,
        }
    }

    /// Adds a record, in place of the oldest ones if there are too many.
    pub(super) fn add(&mut self, owner: K, refused: RefusedRequest) {
        if self.of.len() >= MAX_OWNERS && !self.of.contains_key(&owner) {
            return;
        }
        let kept = self.of.entry(owner).or_default();
        if refused.code == BLOCKED && kept.blocked >= RECORDS_OF_BLOCKED {
            return;
        }
        self.bytes += kept.push(refused);
        if kept.records.len() > KEPT_OF_ACCOUNT {
            self.bytes -= kept.pop();
        }
        if self.bytes > self.max_bytes {
            self.evict();
        }
    }

    /// Removes the oldest records of the owners with the most, until seven eighths of the bound are in use: the next
    /// records have room, so that the owners are not looked at for each of them.
    fn evict(&mut self) {
        let level = level(
            self.of.values().map(|owned| owned.bytes),
            self.max_bytes / 8 * 7,
        );
        for owned in self.of.values_mut() {
            while owned.bytes > level {
                self.bytes -= owned.pop();
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Takes all records, by owner.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (K, VecDeque<RefusedRequest>)> + use<K> {
        self.bytes = 0;
        let all = std::mem::take(&mut self.of).into_iter();
        all.map(|(owner, owned)| (owner, owned.records))
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Owned {
    /// Returns the size of the record.
    fn push(&mut self, refused: RefusedRequest) -> usize {
        let size = size(&refused);
        self.bytes += size;
        self.blocked += usize::from(refused.code == BLOCKED);
        self.records.push_back(refused);
        size
    }

    /// Removes the oldest record and returns its size.
    fn pop(&mut self) -> usize {
        let Some(oldest) = self.records.pop_front() else {
            return 0;
        };
        let size = size(&oldest);
        self.bytes -= size;
        self.blocked -= usize::from(oldest.code == BLOCKED);
        size
    }
}

/// The most that each owner can have, if those with more are cut down to it, for all to have at most `total`.
fn level(bytes: impl Iterator<Item = usize>, total: usize) -> usize {
    let mut bytes: Vec<_> = bytes.collect();
    bytes.sort_unstable();
    let (mut left, mut owners) = (total, bytes.len());
    for bytes in bytes {
        let share = left / owners;
        if bytes > share {
            return share;
        }
        left -= bytes;
        owners -= 1;
    }
    usize::MAX
}

/// The memory of a record, in bytes.
fn size(record: &RefusedRequest) -> usize {
    let texts = [
        &record.id,
        &record.request_id,
        &record.account_id,
        &record.key_id,
        &record.path,
        &record.code,
        &record.message,
    ];
    let others = [
        &record.project_id,
        &record.member_id,
        &record.model,
        &record.param,
        &record.agent,
    ];
    let texts = texts.into_iter().chain(others.into_iter().flatten());
    size_of::<RefusedRequest>() + texts.map(String::capacity).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::level;

    #[test]
    fn owners_with_much_are_cut_down_to_one_level() {
        for (bytes, total, expected) in [
            (vec![], 10, usize::MAX),
            (vec![4, 6], 10, usize::MAX),
            (vec![6, 5], 10, 5),
            (vec![90, 1, 100, 2], 63, 30),
            (vec![5, 5, 5], 2, 0),
        ] {
            assert_eq!(level(bytes.iter().copied(), total), expected, "{bytes:?}");
            let cut: usize = bytes.iter().map(|bytes| bytes.min(&expected)).sum();
            assert!(cut <= total, "{bytes:?}");
        }
    }
}
