//! Responses of calls whose clients have left, until they are taken or too old.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::time::Instant;

use super::{Recording, TAKEN_WITHIN};
use crate::ledger::RequestHash;

/// An API key's ID, and a request.
type Sent = (Box<str>, RequestHash);

#[derive(Default)]
pub(super) struct LeftCalls {
    /// How many there are. While there are none, no request needs to be hashed.
    count: AtomicUsize,
    calls: Mutex<HashMap<Sent, VecDeque<Left>>>,
}

struct Left {
    recording: Arc<Recording>,
    at: Instant,
}

impl LeftCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    pub(super) fn add(&self, key_id: &str, request: RequestHash, recording: Arc<Recording>) {
        let at = Instant::now();
        let mut calls = self.lock();
        let same = calls.entry((key_id.into(), request)).or_default();
        same.push_back(Left { recording, at });
        self.count.fetch_add(1, Relaxed);
    }

    pub(super) fn take(&self, key_id: &str, request: RequestHash) -> Option<Arc<Recording>> {
        let sent = (key_id.into(), request);
        let mut calls = self.lock();
        let same = calls.get_mut(&sent)?;
        let mut taken = None;
        while let Some(left) = same.pop_front() {
            self.count.fetch_sub(1, Relaxed);
            if left.at.elapsed() < TAKEN_WITHIN {
                taken = Some(left.recording);
                break;
            }
        }
        if same.is_empty() {
            calls.remove(&sent);
        }
        taken
    }

    /// Removes those that are too old. Those that failed are removed by the request that takes them.
    pub(super) fn sweep(&self) {
        self.lock().retain(|_, same| {
            let before = same.len();
            same.retain(|left| left.at.elapsed() < TAKEN_WITHIN);
            self.count.fetch_sub(before - same.len(), Relaxed);
            !same.is_empty()
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Sent, VecDeque<Left>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::gateway::retries::Retries;

    #[tokio::test(start_paused = true)]
    async fn what_was_left_is_taken_once_by_the_same_key_and_request_and_not_too_late() {
        let retries = Retries::new(crate::config::Retries::default());
        let left = LeftCalls::default();
        let hash = |body: &[u8]| RequestHash::of("/v1/messages", body);
        let [first, second, third] = [(); 3].map(|()| retries.record("a").recording().clone());
        left.add("key_1", hash(b"x"), first.clone());
        left.add("key_1", hash(b"x"), second.clone());
        assert!(left.take("key_2", hash(b"x")).is_none());
        assert!(left.take("key_1", hash(b"y")).is_none());
        assert!(Arc::ptr_eq(
            &left.take("key_1", hash(b"x")).unwrap(),
            &first
        ));
        assert!(Arc::ptr_eq(
            &left.take("key_1", hash(b"x")).unwrap(),
            &second
        ));
        assert!(left.take("key_1", hash(b"x")).is_none());
        assert!(left.is_empty());
        left.add("key_1", hash(b"x"), third.clone());
        tokio::time::advance(Duration::from_secs(599)).await;
        left.sweep();
        assert!(!left.is_empty());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(left.take("key_1", hash(b"x")).is_none());
        assert!(left.is_empty());
        left.add("key_1", hash(b"x"), third);
        tokio::time::advance(TAKEN_WITHIN).await;
        left.sweep();
        assert!(left.is_empty() && left.lock().is_empty());
    }
}
