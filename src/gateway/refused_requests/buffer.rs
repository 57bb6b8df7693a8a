//! Refused requests in memory, within bounds.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    mem,
};

use crate::{
    backoffice::{BLOCKED, RefusedKind, RefusedRequest},
    base::keys::KeyDigest,
    ledger::Payer,
};

/// Most records of an account that wait to be written. The newest stay.
const RECORDS_OF_ACCOUNT: usize = 50;
/// Most records of a key that is not valid, until its account is known.
const RECORDS_OF_KEY: usize = 5;
/// Most records of an account that was refused for having been refused too often: what it did before matters more.
const RECORDS_OF_BLOCKED: usize = 5;
/// Most records that wait to be written, at about two kilobytes each.
const MAX_RECORDS: usize = 2_000;
/// Most kinds that are counted at a time.
const MAX_KINDS: usize = 16_384;
/// Most kinds of an account in a minute; further ones are counted without their keys.
const KINDS_OF_ACCOUNT: usize = 100;
/// Most keys that are not valid at a time.
const MAX_UNRESOLVED: usize = 256;
/// Most keys that are remembered as never valid.
const MAX_STRANGE: usize = 1_024;

#[derive(Default)]
pub(super) struct Buffer {
    /// By account, the oldest first.
    records: HashMap<String, VecDeque<RefusedRequest>>,
    record_count: usize,
    counts: HashMap<RefusedKind, Counted>,
    /// How many kinds each account has in a minute.
    kinds: HashMap<(String, i64), usize>,
    unresolved: HashMap<Vec<KeyDigest>, Unresolved>,
    /// Keys that were never valid, as a lookup has shown.
    strange: HashSet<Vec<KeyDigest>>,
    /// Requests that were not counted because there was no room.
    pub dropped: u64,
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
    /// How many there were, by what they are counted by but for account and key.
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
        let unresolved = self.unresolved.entry(keys);
        let unresolved = unresolved.or_insert_with_key(|keys| Unresolved {
            keys: keys.clone(),
            records: VecDeque::new(),
            counts: HashMap::new(),
        });
        *unresolved.counts.entry(kind(&refused)).or_default() += 1;
        push(&mut unresolved.records, refused, RECORDS_OF_KEY);
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
        mem::take(&mut self.unresolved).into_values().collect()
    }

    /// Keeps what could not be looked up, as far as there is room.
    pub(super) fn put_back_unresolved(&mut self, all: Vec<Unresolved>) {
        for mut one in all {
            let Some(newer) = self.unresolved.get_mut(&one.keys) else {
                if self.unresolved.len() < MAX_UNRESOLVED {
                    self.unresolved.insert(one.keys.clone(), one);
                } else {
                    let requests: i64 = one.counts.values().sum();
                    self.dropped += requests.unsigned_abs();
                }
                continue;
            };
            for (kind, requests) in one.counts {
                *newer.counts.entry(kind).or_default() += requests;
            }
            for refused in newer.records.drain(..) {
                push(&mut one.records, refused, RECORDS_OF_KEY);
            }
            newer.records = one.records;
        }
    }

    /// All records, the oldest of an account first.
    pub(super) fn take_records(&mut self) -> Vec<RefusedRequest> {
        self.record_count = 0;
        let accounts = mem::take(&mut self.records).into_values();
        accounts.flatten().collect()
    }

    /// Keeps records that could not be written, beside newer ones.
    pub(super) fn put_back(&mut self, records: &[RefusedRequest]) {
        let newer = self.take_records();
        for refused in records.iter().cloned().chain(newer) {
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
        let is_full = self.record_count >= MAX_RECORDS;
        if is_full && !self.records.contains_key(&refused.account_id) {
            return; // it is counted
        }
        let of_account = self.records.entry(refused.account_id.clone()).or_default();
        let before = of_account.len();
        if refused.code == BLOCKED {
            let blocked = of_account.iter().filter(|one| one.code == BLOCKED);
            if blocked.count() >= RECORDS_OF_BLOCKED {
                return; // it is counted
            }
        }
        if is_full {
            of_account.pop_front();
        }
        push(of_account, refused, RECORDS_OF_ACCOUNT);
        self.record_count = self.record_count + of_account.len() - before;
    }
}

/// Adds a record, in place of the oldest one if there are too many.
fn push(records: &mut VecDeque<RefusedRequest>, refused: RefusedRequest, most: usize) {
    if records.len() >= most {
        records.pop_front();
    }
    records.push_back(refused);
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
