//! The calls of this gateway that hold credit or are about to.
//!
//! PostgreSQL can lose a hold (by a crash before it was on the disk, or because this gateway was paused for longer than
//! its lease) and can keep one that is no longer needed. Only the gateway itself knows its running calls: from this
//! list it renews lost holds and recognizes stray ones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::operations::Operation;
use crate::{base::fast_map::FastMap, ledger::CallId};

/// Calls are distributed over this many maps, so that threads rarely contend.
const SHARDS: usize = 16;

#[derive(Default)]
pub(crate) struct OpenCalls([Mutex<FastMap<CallId, OpenCall>>; SHARDS]);

struct OpenCall {
    account_id: String,
    /// The JSON of the last acknowledged hold or extension; `None` until the hold is acknowledged.
    hold: Option<Arc<str>>,
}

impl OpenCalls {
    /// Registers a call before its hold is sent: from now on the hold may be in the database.
    pub(crate) fn insert(&self, id: CallId, account_id: &str) {
        let call = OpenCall {
            account_id: account_id.to_owned(),
            hold: None,
        };
        self.shard(id).insert(id, call);
    }

    /// Stores the hold, or its extension, that was acknowledged.
    pub(crate) fn set_hold(&self, id: CallId, text: Arc<str>) {
        if let Some(call) = self.shard(id).get_mut(&id) {
            call.hold = Some(text);
        }
    }

    /// Removes a call that has ended or whose hold was refused.
    pub(crate) fn remove(&self, id: CallId) {
        self.shard(id).remove(&id);
    }

    pub(crate) fn contains(&self, id: CallId) -> bool {
        self.shard(id).contains_key(&id)
    }

    /// One renewal for each running call.
    pub(crate) fn renewals(&self) -> Vec<Operation> {
        let mut renewals = Vec::new();
        for shard in &self.0 {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            renewals.extend(shard.iter().filter_map(|(id, call)| {
                let text = call.hold.clone()?;
                Some(Operation::renew(&call.account_id, *id, text))
            }));
        }
        renewals
    }

    fn shard(&self, id: CallId) -> MutexGuard<'_, FastMap<CallId, OpenCall>> {
        // The lowest bits count the calls of a millisecond from zero; the slot and the time are above them.
        let number = id.0 ^ (id.0 >> 19);
        let shard = &self.0[usize::try_from(number).unwrap_or(0) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
