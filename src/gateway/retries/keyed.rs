//! Running calls that other requests can find: by their idempotency key, or by the ID of their response.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{RecordedCall, Recording};
use crate::{
    base::fast_map::FastMap,
    ledger::{IdempotencyKey, RequestHash},
};

/// What a request with a key is.
pub(crate) enum Begun {
    /// The first one: it runs, and others with the key find it until this is dropped.
    First(Arc<RecordedCall>),
    /// One with the same request is running.
    Running(Arc<Recording>),
    /// One with another request is running.
    OtherRequest,
}

/// The running calls with a key. Clients choose the keys, so the hash resists collisions.
#[derive(Default)]
pub(super) struct KeyedCalls(Mutex<ByKey>);

/// By account and key.
type ByKey = HashMap<(Box<str>, Box<str>), Running>;

struct Running {
    request: RequestHash,
    recording: Arc<Recording>,
}

impl KeyedCalls {
    pub(super) fn begin(
        &self,
        account_id: &str,
        key: IdempotencyKey,
        call: impl FnOnce(Arc<IdempotencyKey>) -> RecordedCall,
    ) -> Begun {
        let mut calls = self.lock();
        let of = (account_id.into(), key.key.as_str().into());
        if let Some(running) = calls.get(&of) {
            return if running.request == key.request_hash {
                Begun::Running(running.recording.clone())
            } else {
                Begun::OtherRequest
            };
        }
        let request = key.request_hash;
        let call = Arc::new(call(Arc::new(key)));
        let recording = call.recording().clone();
        calls.insert(of, Running { request, recording });
        Begun::First(call)
    }

    pub(super) fn end(&self, account_id: &str, key: &str, recording: &Arc<Recording>) {
        let of = (account_id.into(), key.into());
        let mut calls = self.lock();
        let running = calls.get(&of);
        if running.is_some_and(|running| Arc::ptr_eq(&running.recording, recording)) {
            calls.remove(&of);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ByKey> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Streams that will be stored, by the IDs of their responses.
#[derive(Default)]
pub(super) struct RunningResponses(Mutex<ById>);

/// The account and the recording, by the ID of the response.
type ById = FastMap<Box<str>, (Box<str>, Arc<Recording>)>;

impl RunningResponses {
    pub(super) fn add(&self, account_id: &str, id: &str, recording: &Arc<Recording>) {
        let running = (account_id.into(), recording.clone());
        self.lock().insert(id.into(), running);
    }

    pub(super) fn find(&self, account_id: &str, id: &str) -> Option<Arc<Recording>> {
        let running = self.lock();
        let (owner, recording) = running.get(id)?;
        (**owner == *account_id).then(|| recording.clone())
    }

    pub(super) fn remove(&self, id: &str) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, ById> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::retries::{Begin, Retries};

    fn key(key: &str, body: &[u8]) -> IdempotencyKey {
        IdempotencyKey {
            key: key.into(),
            request_hash: RequestHash::of("/v1/messages", body),
        }
    }

    #[tokio::test]
    async fn of_two_requests_with_a_key_one_runs_until_it_is_over() {
        let retries = Retries::new(crate::config::Retries::default());
        let begin = |account: &str, body: &[u8]| retries.begin(account, key("k", body));
        let Begun::First(first) = begin("a", b"1") else {
            panic!("none is running");
        };
        let Begun::Running(second) = begin("a", b"1") else {
            panic!("one is running");
        };
        assert!(matches!(begin("a", b"2"), Begun::OtherRequest));
        assert!(
            matches!(begin("b", b"2"), Begun::First(_)),
            "another account's key"
        );
        let held = first.clone();
        drop(first);
        assert!(
            matches!(begin("a", b"1"), Begun::Running(_)),
            "it is still held"
        );
        drop(held);
        assert!(matches!(second.begun().await, Begin::Failed));
        assert!(matches!(begin("a", b"2"), Begun::First(_)));
        assert!(retries.keyed.lock().is_empty());
    }

    /// The call may still wait for its client to read the error.
    #[test]
    fn the_key_of_a_call_that_has_failed_is_free_though_the_call_is_not_over() {
        let retries = Retries::new(crate::config::Retries::default());
        let Begun::First(failed) = retries.begin("a", key("k", b"1")) else {
            panic!("none is running");
        };
        failed.fail();
        let Begun::First(next) = retries.begin("a", key("k", b"1")) else {
            panic!("the first one has failed");
        };
        drop(failed);
        assert!(matches!(
            retries.begin("a", key("k", b"1")),
            Begun::Running(_)
        ));
        drop(next);
    }

    #[test]
    fn a_running_response_is_found_by_its_account_alone() {
        let retries = Retries::new(crate::config::Retries::default());
        let call = retries.record("a");
        call.will_be_stored("resp_1");
        assert!(retries.running_response("a", "resp_1").is_some());
        assert!(retries.running_response("b", "resp_1").is_none());
        assert!(retries.running_response("a", "resp_2").is_none());
        drop(call);
        assert!(retries.running_response("a", "resp_1").is_none());
    }
}
