//! The memory that recordings may take, in all and for each account.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::fast_map::FastMap;

/// The part of the memory that one account may take.
const SHARE_OF_ACCOUNT: usize = 4;
/// Bytes of a recording that are not counted: a running call takes several times as much.
pub(super) const UNCOUNTED_BYTES: usize = 4 << 10;

pub(crate) struct RecordingMemory {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    reserved: usize,
    accounts: FastMap<Box<str>, usize>,
}

/// The memory of one recording; released when it is dropped.
pub(crate) struct Reservation {
    memory: Arc<RecordingMemory>,
    account_id: Box<str>,
    bytes: usize,
}

impl RecordingMemory {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            state: Mutex::default(),
        }
    }

    /// An empty reservation.
    pub(crate) fn begin(self: &Arc<Self>, account_id: &str) -> Reservation {
        Reservation {
            memory: self.clone(),
            account_id: account_id.into(),
            bytes: 0,
        }
    }

    pub(crate) fn reserved(&self) -> usize {
        self.lock().reserved
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Reserves what a buffer of this capacity takes. A lock that all calls share is taken for long responses only.
    pub(super) fn cover(&mut self, capacity: usize) -> bool {
        let uncounted = UNCOUNTED_BYTES.min(self.memory.limit);
        let wanted = capacity.saturating_sub(uncounted);
        wanted <= self.bytes || self.grow(wanted - self.bytes)
    }

    /// Reserves so many bytes more; returns `false` and changes nothing if there is no room.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let memory = &self.memory;
        let mut state = memory.lock();
        let of_account = state.accounts.get(&self.account_id).copied().unwrap_or(0);
        let is_too_much = state.reserved + bytes > memory.limit
            || of_account + bytes > memory.limit / SHARE_OF_ACCOUNT;
        if is_too_much {
            return false;
        }
        state.reserved += bytes;
        *state.accounts.entry(self.account_id.clone()).or_default() += bytes;
        self.bytes += bytes;
        true
    }

    pub(crate) fn release(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut state = self.memory.lock();
        state.reserved -= self.bytes;
        if let Some(of_account) = state.accounts.get_mut(&self.account_id) {
            *of_account -= self.bytes;
            if *of_account == 0 {
                state.accounts.remove(&self.account_id);
            }
        }
        self.bytes = 0;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_takes_its_share_and_all_take_the_limit() {
        let memory = Arc::new(RecordingMemory::new(400));
        let mut first = memory.begin("a");
        assert!(first.grow(60));
        let mut second = memory.begin("a");
        assert!(!second.grow(41), "beyond its share");
        assert!(second.grow(40));
        let others: Vec<_> = ["b", "c", "d"]
            .map(|account| {
                let mut other = memory.begin(account);
                assert!(other.grow(100));
                other
            })
            .into();
        assert!(!memory.begin("e").grow(1), "beyond the limit");
        drop(first);
        assert!(memory.begin("e").grow(60));
        drop((second, others));
        assert_eq!(memory.reserved(), 0);
        assert!(memory.lock().accounts.is_empty());
    }
}
