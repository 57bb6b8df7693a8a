//! Records of refused requests, on their way from requests to the backoffice.
//!
//! A request puts its record into memory; a job writes about once a second what came since. Of each account the newest
//! are written, and all are counted, so that a client that is refused very often costs no more than one that is refused
//! often. If memory for accounts and counts is used up, further ones are dropped, which is logged.
//!
//! If the store fails, records wait for the next attempt, as many as there is room for; counts lose nothing.

use std::{
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

mod buffer;

use self::buffer::Buffer;
use super::Gateway;
use crate::{
    backoffice::{BackofficeError, RefusedRequest},
    base::{
        keys::{KeyDigest, random_id},
        timestamp,
    },
};

/// Records in one transaction.
const RECORDS_AT_ONCE: usize = 50;
/// Counts in one transaction.
const COUNTS_AT_ONCE: usize = 200;

pub(crate) struct RefusedRequests {
    buffer: Mutex<Buffer>,
    /// Names this process in the counts, which others write as well.
    writer: String,
    /// One batch is written at a time, so that who waits for it finds what was refused before.
    writing: tokio::sync::Mutex<()>,
}

impl Default for RefusedRequests {
    fn default() -> Self {
        Self {
            buffer: Mutex::default(),
            writer: random_id("gw_"),
            writing: tokio::sync::Mutex::default(),
        }
    }
}

impl RefusedRequests {
    /// Adds a refused request of a known key.
    pub(crate) fn add(&self, refused: RefusedRequest) {
        self.buffer().add(refused);
    }

    /// Adds a refused request with keys that are not valid. It is kept if one of them was valid before: the job looks
    /// that up, so `refused` has no account and no key yet.
    pub(crate) fn add_with_keys(&self, keys: Vec<KeyDigest>, refused: RefusedRequest) {
        self.buffer().add_with_keys(keys, refused);
    }

    /// Whether these keys are known to have never been valid, so that no account sees requests with them.
    pub(crate) fn were_never_valid(&self, keys: &[KeyDigest]) -> bool {
        keys.is_empty() || self.buffer().is_strange(keys)
    }

    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gateway {
    /// Writes the refused requests until now.
    pub(crate) async fn write_refused_requests(&self) -> Result<(), BackofficeError> {
        let _writing = self.refused_requests.writing.lock().await;
        self.find_former_keys().await;
        let refused = &self.refused_requests;
        let (records, counts, dropped) = {
            let mut buffer = refused.buffer();
            let dropped = mem::take(&mut buffer.dropped);
            (buffer.take_records(), buffer.unwritten_counts(), dropped)
        };
        if dropped > 0 {
            tracing::warn!(
                requests = dropped,
                "too many accounts and keys were refused within a second; these requests are in no list"
            );
        }
        let mut records = records.as_slice();
        while !records.is_empty() {
            let (batch, rest) = records.split_at(records.len().min(RECORDS_AT_ONCE));
            if let Err(error) = self.backoffice.write_refused(batch).await {
                refused.buffer().put_back(records);
                return Err(error);
            }
            records = rest;
        }
        for batch in counts.chunks(COUNTS_AT_ONCE) {
            let writing = self.backoffice.write_refused_counts(&refused.writer, batch);
            writing.await?;
            refused.buffer().written(batch);
        }
        let minute = timestamp::now_ms().div_euclid(60_000);
        refused.buffer().forget_before(minute);
        Ok(())
    }

    /// Writes the refused requests until now for a page that shows them. If that fails, the page shows what is written.
    pub(crate) async fn write_refused_now(&self) {
        if self.refused_requests.buffer().is_written()
            && self.refused_requests.writing.try_lock().is_ok()
        {
            return;
        }
        if let Err(error) = self.write_refused_requests().await {
            tracing::debug!(%error, "writing refused requests for a page failed");
        }
    }

    /// Finds the accounts of refused requests whose keys were valid before.
    async fn find_former_keys(&self) {
        let unresolved = self.refused_requests.buffer().take_unresolved();
        if unresolved.is_empty() {
            return;
        }
        let digests = unresolved.iter().flat_map(|one| one.keys.iter().copied());
        let found = match self.ledger.keys_with_digests(digests.collect()).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, "looking up refused keys failed; trying again");
                self.refused_requests
                    .buffer()
                    .put_back_unresolved(unresolved);
                return;
            }
        };
        let mut buffer = self.refused_requests.buffer();
        for one in unresolved {
            let mut keys = one.keys.iter();
            let key = keys.find_map(|digest| {
                let mut found = found.iter();
                found.find(|key| key.has_digest(*digest))
            });
            match key {
                Some(key) => buffer.add_resolved(one, &key.account_id, &key.payer),
                None => buffer.add_strange(one.keys),
            }
        }
    }
}
