//! The calls of this gateway that hold credit, or have asked for it.
//!
//! PostgreSQL can lose a hold (it crashed before the hold was on its disk, or this gateway was paused
//! for longer than its lease) and can keep one that nobody needs. Only the gateway knows which of its
//! calls are running: from here it renews what was lost, and tells which rows are stray.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::steps::Step;
use crate::{base::fast_map::FastMap, ledger::CallId};

/// Calls are spread over so many maps, so that threads seldom wait for each other.
const SHARDS: usize = 16;

#[derive(Default)]
pub struct OpenCalls([Mutex<FastMap<CallId, OpenCall>>; SHARDS]);

struct OpenCall {
    account_id: String,
    /// The last hold or extension that was acknowledged, as the database reads it; `None` until the hold is.
    hold: Option<Arc<str>>,
}

impl OpenCalls {
    /// The call is about to ask for a hold. Its row may be there from now on.
    pub fn begins(&self, id: CallId, account_id: &str) {
        let call = OpenCall {
            account_id: account_id.to_owned(),
            hold: None,
        };
        self.shard(id).insert(id, call);
    }

    /// Its hold, or the extension of it, was acknowledged.
    pub fn holds(&self, id: CallId, text: Arc<str>) {
        if let Some(call) = self.shard(id).get_mut(&id) {
            call.hold = Some(text);
        }
    }

    /// The call has ended, or its hold was refused.
    pub fn ends(&self, id: CallId) {
        self.shard(id).remove(&id);
    }

    pub fn contains(&self, id: CallId) -> bool {
        self.shard(id).contains_key(&id)
    }

    /// A step for each running call that makes sure of its hold.
    pub fn renewals(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for shard in &self.0 {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            steps.extend(shard.iter().filter_map(|(id, call)| {
                let text = call.hold.clone()?;
                Some(Step::renew(&call.account_id, *id, text))
            }));
        }
        steps
    }

    fn shard(&self, id: CallId) -> MutexGuard<'_, FastMap<CallId, OpenCall>> {
        // The lowest bits count the calls of a millisecond, from zero; the time is above them and the slot.
        let number = id.0 ^ (id.0 >> 19);
        let shard = &self.0[usize::try_from(number).unwrap_or(0) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
