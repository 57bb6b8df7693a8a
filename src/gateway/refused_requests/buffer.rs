//! Refused requests in memory, within bounds.

mod records;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    mem,
};

use self::records::Records;
use crate::{
    backoffice::{RefusedKind, RefusedRequest},
    base::keys::KeyDigest,
    ledger::Payer,
};

/// Most bytes of records that wait to be written: about 12,000 of them. As many again can be on their way to the store.
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// Most bytes of records with keys that are not valid, until their accounts are known. Anyone can send such keys.
const MAX_UNRESOLVED_BYTES: usize = 1024 * 1024;
/// Most kinds that are counted at a time.
const MAX_KINDS: usize = 16_384;
/// Most kinds of an account in a minute; further ones are counted without their keys.
const KINDS_OF_ACCOUNT: usize = 100;
/// Most keys that are not valid at a time.
const MAX_UNRESOLVED: usize = 256;
/// Most keys that are remembered as never valid.
const MAX_STRANGE: usize = 1_024;

pub(super) struct Buffer {
    /// By account.
    records: Records<String>,
    counts: HashMap<RefusedKind, Counted>,
    /// How many kinds each account has in a minute.
    kinds: HashMap<(String, i64), usize>,
    /// How many requests with keys that are not valid there were, by what they are counted by but for account and key.
    unresolved: HashMap<Vec<KeyDigest>, HashMap<RefusedKind, i64>>,
    unresolved_records: Records<Vec<KeyDigest>>,
    /// Keys that were never valid, as a lookup has shown.
    strange: HashSet<Vec<KeyDigest>>,
    /// Requests that were not counted because there was no room.
    pub dropped: u64,
}

impl Default for Buffer {
    fn default() -> Self {
        Self {
            records: Records::new(MAX_BYTES),
            counts: HashMap::new(),
            kinds: HashMap::new(),
            unresolved: HashMap::new(),
            unresolved_records: Records::new(MAX_UNRESOLVED_BYTES),
            strange: HashSet::new(),
            dropped: 0,
        }
    }
}

/// How many requests of a kind were refused. A kind includes its time, by minute.
#[derive(Clone, Copy, Default)]
struct Counted {
    total: i64,
    /// As much of it as is written.
    written: i64,
}

/// Refused requests with the same keys, which are not valid.
pub(super) struct Unresolved {
    pub keys: Vec<KeyDigest>,
    /// The newest of them, the oldest first.
    records: VecDeque<RefusedRequest>,
    counts: HashMap<RefusedKind, i64>,
}

impl Buffer {
    pub(super) fn add(&mut self, refused: RefusedRequest) {
        self.count(kind(&refused), 1);
        self.keep(refused);
    }

    pub(super) fn add_with_keys(&mut self, keys: Vec<KeyDigest>, refused: RefusedRequest) {
        if self.unresolved.len() >= MAX_UNRESOLVED && !self.unresolved.contains_key(&keys) {
            self.dropped += 1;
            return;
        }
        let counts = self.unresolved.entry(keys.clone()).or_default();
        *counts.entry(kind(&refused)).or_default() += 1;
        self.unresolved_records.add(keys, refused);
    }

    /// Whether these keys are known to have never been valid.
    pub(super) fn is_strange(&self, keys: &[KeyDigest]) -> bool {
        self.strange.contains(keys)
    }

    /// Remembers keys that were never valid, so that they are not looked up again.
    pub(super) fn add_strange(&mut self, keys: Vec<KeyDigest>) {
        if self.strange.len() >= MAX_STRANGE {
            self.strange.clear();
        }
        self.strange.insert(keys);
    }

    /// Adds requests whose key was found.
    pub(super) fn add_resolved(&mut self, resolved: Unresolved, account_id: &str, payer: &Payer) {
        for (kind, requests) in resolved.counts {
            let kind = RefusedKind {
                account_id: account_id.to_owned(),
                key_id: payer.key_id.clone(),
                ..kind
            };
            self.count(kind, requests);
        }
        for refused in resolved.records {
            self.keep(RefusedRequest {
                account_id: account_id.to_owned(),
                key_id: payer.key_id.clone(),
                project_id: payer.project_id.clone(),
                member_id: payer.member_id.clone(),
                ..refused
            });
        }
    }

    pub(super) fn take_unresolved(&mut self) -> Vec<Unresolved> {
        let mut records: HashMap<_, _> = self.unresolved_records.take().collect();
        let all = mem::take(&mut self.unresolved).into_iter();
        let all = all.map(|(keys, counts)| Unresolved {
            records: records.remove(&keys).unwrap_or_default(),
            counts,
            keys,
        });
        all.collect()
    }

    /// Keeps what could not be looked up, as far as there is room, before what came since.
    pub(super) fn put_back_unresolved(&mut self, all: Vec<Unresolved>) {
        let newer = self.take_unresolved();
        for one in all.into_iter().chain(newer) {
            if self.unresolved.len() >= MAX_UNRESOLVED && !self.unresolved.contains_key(&one.keys) {
                let requests: i64 = one.counts.values().sum();
                self.dropped += requests.unsigned_abs();
                continue;
            }
            for refused in one.records {
                self.unresolved_records.add(one.keys.clone(), refused);
            }
            let counts = self.unresolved.entry(one.keys).or_default();
            for (kind, requests) in one.counts {
                *counts.entry(kind).or_default() += requests;
            }
        }
    }

    /// All records, the oldest of an account first.
    pub(super) fn take_records(&mut self) -> Vec<RefusedRequest> {
        self.records
            .take()
            .flat_map(|(_, records)| records)
            .collect()
    }

    /// Keeps records that could not be written, beside newer ones.
    pub(super) fn put_back(&mut self, records: Vec<RefusedRequest>) {
        let newer = self.take_records();
        for refused in records.into_iter().chain(newer) {
            self.keep(refused);
        }
    }

    /// Whether there is nothing to write.
    pub(super) fn is_written(&self) -> bool {
        let is_counted = |counted: &Counted| counted.written == counted.total;
        self.records.is_empty()
            && self.unresolved.is_empty()
            && self.counts.values().all(is_counted)
    }

    /// The counts that are not written yet.
    pub(super) fn unwritten_counts(&self) -> Vec<(RefusedKind, i64)> {
        let unwritten = self
            .counts
            .iter()
            .filter(|(_, counted)| counted.written < counted.total);
        unwritten
            .map(|(kind, counted)| (kind.clone(), counted.total))
            .collect()
    }

    pub(super) fn written(&mut self, counts: &[(RefusedKind, i64)]) {
        for (kind, requests) in counts {
            if let Some(counted) = self.counts.get_mut(kind) {
                counted.written = *requests;
            }
        }
    }

    /// Forgets counts that are written and grow no more, because they are of earlier minutes and no request waits for its
    /// key to be found.
    pub(super) fn forget_before(&mut self, minute: i64) {
        if !self.unresolved.is_empty() {
            return;
        }
        self.kinds.retain(|(_, of), _| *of >= minute);
        self.counts
            .retain(|kind, counted| kind.minute >= minute || counted.written < counted.total);
    }

    fn count(&mut self, mut kind: RefusedKind, requests: i64) {
        let of_account = (kind.account_id.clone(), kind.minute);
        let kinds = self.kinds.get(&of_account).copied().unwrap_or(0);
        if kinds >= KINDS_OF_ACCOUNT && !self.counts.contains_key(&kind) {
            kind.key_id.clear();
        }
        if let Some(counted) = self.counts.get_mut(&kind) {
            counted.total += requests;
        } else if self.counts.len() < MAX_KINDS {
            let total = requests;
            self.counts.insert(kind, Counted { total, written: 0 });
            self.kinds.insert(of_account, kinds + 1);
        } else {
            self.dropped += requests.unsigned_abs();
        }
    }

    fn keep(&mut self, refused: RefusedRequest) {
        self.records.add(refused.account_id.clone(), refused);
    }
}

fn kind(refused: &RefusedRequest) -> RefusedKind {
    RefusedKind {
        account_id: refused.account_id.clone(),
        key_id: refused.key_id.clone(),
        status: refused.status,
        code: refused.code.clone(),
        minute: refused.at_ms.div_euclid(60_000),
    }
}

#[cfg(test)]
mod tests;
