//! Records of refused requests, on their way from requests to the backoffice.
//!
//! A request puts its record into memory; a job writes about once a second what came since. Of each account the newest
//! thousand are written, as many as are kept of it, so that the page of each of a burst opens; and all are counted.
//! Records have 8 MiB of memory, in which accounts with few come before those with many, and as much while they are
//! written. If memory for counts is used up, further ones are dropped, which is logged.
//!
//! If the store fails, or a page that waits for a write is closed, records wait for the next attempt, as many as there is
//! room for; counts lose nothing.

use std::{
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

mod buffer;

use self::buffer::{Buffer, Unresolved};
use super::Gateway;
use crate::{
    backoffice::{BackofficeError, RefusedRequest},
    base::{
        keys::{KeyDigest, random_id},
        timestamp,
    },
};

/// Records in one transaction, and counts in one. PostgreSQL takes a round trip for each, within the deadline of an operation.
const RECORDS_AT_ONCE: usize = 50;
const COUNTS_AT_ONCE: usize = 50;

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

/// What was taken out of the buffer. What is left of it when a write ends, also by being cancelled, goes back.
struct Taken<'a> {
    from: &'a RefusedRequests,
    records: Vec<RefusedRequest>,
    unresolved: Vec<Unresolved>,
}

impl<'a> Taken<'a> {
    fn new(from: &'a RefusedRequests, records: Vec<RefusedRequest>) -> Self {
        Self {
            from,
            records,
            unresolved: Vec::new(),
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let (records, unresolved) = (
            mem::take(&mut self.records),
            mem::take(&mut self.unresolved),
        );
        if records.is_empty() && unresolved.is_empty() {
            return;
        }
        let mut buffer = self.from.buffer();
        buffer.put_back(records);
        buffer.put_back_unresolved(unresolved);
    }
}

impl Gateway {
    /// Writes the refused requests until now.
    pub(crate) async fn write_refused_requests(&self) -> Result<(), BackofficeError> {
        let _writing = self.refused_requests.writing.lock().await;
        self.find_former_keys().await;
        let refused = &self.refused_requests;
        let (mut taken, counts, dropped) = {
            let mut buffer = refused.buffer();
            let dropped = mem::take(&mut buffer.dropped);
            let records = buffer.take_records();
            (
                Taken::new(refused, records),
                buffer.unwritten_counts(),
                dropped,
            )
        };
        if dropped > 0 {
            tracing::warn!(
                requests = dropped,
                "too many accounts and keys were refused within a second; these requests are in no list"
            );
        }
        while !taken.records.is_empty() {
            let batch = taken.records.len().min(RECORDS_AT_ONCE);
            let writing = self.backoffice.write_refused(&taken.records[..batch]);
            writing.await?;
            taken.records.drain(..batch);
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
        let mut taken = Taken::new(&self.refused_requests, Vec::new());
        taken.unresolved = self.refused_requests.buffer().take_unresolved();
        let unresolved = &taken.unresolved;
        if unresolved.is_empty() {
            return;
        }
        let digests = unresolved.iter().flat_map(|one| one.keys.iter().copied());
        let found = match self.ledger.keys_with_digests(digests.collect()).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, "looking up refused keys failed; trying again");
                return;
            }
        };
        let mut buffer = self.refused_requests.buffer();
        for one in mem::take(&mut taken.unresolved) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoffice::RefusedRequest;

    #[test]
    fn what_a_cancelled_write_has_taken_goes_back() {
        let requests = RefusedRequests::default();
        let add = |keys: Vec<KeyDigest>, account_id: &str| {
            let refused = RefusedRequest {
                id: "refused_1".into(),
                at_ms: 0,
                request_id: "req_1".into(),
                account_id: account_id.into(),
                key_id: String::new(),
                project_id: None,
                member_id: None,
                path: "/v1/models".into(),
                model: None,
                status: 401,
                code: "invalid_api_key".into(),
                param: None,
                message: String::new(),
                agent: None,
                took_ms: 1,
            };
            if keys.is_empty() {
                requests.add(refused);
            } else {
                requests.add_with_keys(keys, refused);
            }
        };
        add(Vec::new(), "acct_1");
        add(vec![KeyDigest([7; 32])], "");
        let records = requests.buffer().take_records();
        let mut taken = Taken::new(&requests, records);
        taken.unresolved = requests.buffer().take_unresolved();
        assert_eq!((taken.records.len(), taken.unresolved.len()), (1, 1));
        drop(taken);
        assert_eq!(requests.buffer().take_records().len(), 1);
        assert_eq!(requests.buffer().take_unresolved().len(), 1);
    }
}
