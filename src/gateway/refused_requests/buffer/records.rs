//! Records that wait to be written, by owner, in bounded memory.
//!
//! An owner is an account, or the keys of requests whose account is not known yet. Each has room for as many records as
//! are kept of an account, so that a burst loses none. What all have together is bounded in bytes: beyond that the owner
//! with the most gives up its oldest record: a client with many keys takes no room from accounts with few records.

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
        while self.bytes > self.max_bytes {
            let most = self.of.values_mut().max_by_key(|owned| owned.bytes);
            let Some(most) = most else { break };
            self.bytes -= most.pop();
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
