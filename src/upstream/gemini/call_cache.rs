//! Cache of what Gemini requires with a function call in the history, by the ID that the caller got.
//!
//! A chat history carries an ID, a name and arguments for a call, and nothing else. Gemini 3 and later sign calls
//! (`thoughtSignature`) and refuse a history in which the signature is missing. So signatures are kept in memory for
//! an hour, for the latest ten thousand calls and up to 64 MiB, and are lost with the process. A call that is not in
//! the cache is sent with [`PLACEHOLDER_SIGNATURE`].

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::base::keys::random_id;

const MAX_CALLS: usize = 10_000;
const MAX_BYTES: usize = 64 << 20;
const MAX_AGE: Duration = Duration::from_hours(1);

/// The signature that Google documents for calls that were not made by Gemini.
pub(crate) const PLACEHOLDER_SIGNATURE: &str = "skip_thought_signature_validator";

/// What a call must be sent back with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallMetadata {
    /// Gemini's own ID for the call; most calls have none.
    pub id: Option<String>,
    pub signature: Option<String>,
}

/// The cache of one provider.
#[derive(Debug, Default)]
pub(crate) struct CallCache(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_id: HashMap<String, CallMetadata>,
    /// Insertion times and IDs, the oldest first.
    by_age: VecDeque<(Instant, String)>,
    bytes: usize,
}

impl CallCache {
    /// Caches a call's metadata; returns the ID for the caller, under which it is found.
    pub(crate) fn insert(&self, metadata: CallMetadata) -> String {
        let id = random_id("call_");
        if metadata != CallMetadata::default() {
            let now = Instant::now();
            self.locked()
                .insert(id.clone(), metadata, now, MAX_CALLS, MAX_BYTES);
        }
        id
    }

    /// The metadata of a call; empty if it had none or was evicted.
    pub(crate) fn get(&self, id: &str) -> CallMetadata {
        let mut entries = self.locked();
        entries.evict_older_than(MAX_AGE, Instant::now());
        entries.by_id.get(id).cloned().unwrap_or_default()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Entries> {
        // A poisoned lock is used on: no panic can leave a change half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn insert(
        &mut self,
        id: String,
        metadata: CallMetadata,
        now: Instant,
        max_calls: usize,
        max_bytes: usize,
    ) {
        self.evict_older_than(MAX_AGE, now);
        self.bytes += size(&id, &metadata);
        self.by_id.insert(id.clone(), metadata);
        self.by_age.push_back((now, id));
        while self.by_id.len() > max_calls || self.bytes > max_bytes {
            self.evict_oldest();
        }
    }

    fn evict_older_than(&mut self, age: Duration, now: Instant) {
        while let Some((inserted_at, _)) = self.by_age.front()
            && now.duration_since(*inserted_at) >= age
        {
            self.evict_oldest();
        }
    }

    fn evict_oldest(&mut self) {
        let Some((_, id)) = self.by_age.pop_front() else {
            return;
        };
        if let Some(metadata) = self.by_id.remove(&id) {
            self.bytes -= size(&id, &metadata);
        }
    }
}

/// The bytes of one entry, with its ID stored twice.
fn size(id: &str, metadata: &CallMetadata) -> usize {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    2 * id.len() + length(&metadata.id) + length(&metadata.signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(signature: &str) -> CallMetadata {
        CallMetadata {
            id: None,
            signature: Some(signature.to_owned()),
        }
    }

    #[test]
    fn a_call_is_found_by_the_id_it_was_given() {
        let calls = CallCache::default();
        let (first, second) = (calls.insert(signed("one")), calls.insert(signed("two")));
        assert!(first.starts_with("call_") && first.len() == 29, "{first}");
        assert_eq!(calls.get(&first), signed("one"));
        assert_eq!(calls.get(&second), signed("two"));
        assert_eq!(
            calls.get("call_of_another_provider"),
            CallMetadata::default()
        );
        let unsigned = calls.insert(CallMetadata::default());
        assert_eq!(calls.get(&unsigned), CallMetadata::default());
        assert_eq!(calls.locked().by_age.len(), 2, "no metadata, no entry");
    }

    #[test]
    fn the_oldest_are_evicted_by_number_size_and_age() {
        let start = Instant::now();
        let mut entries = Entries::default();
        for (at, id) in (0..).zip(["a", "b", "c"]) {
            let now = start + Duration::from_mins(at);
            entries.insert(id.into(), signed("12345678"), now, 2, 1_000);
        }
        assert!(!entries.by_id.contains_key("a"), "three are too many");
        assert_eq!((entries.by_age.len(), entries.bytes), (2, 20));

        entries.insert(
            "d".into(),
            signed("1234"),
            start + Duration::from_mins(3),
            9,
            17,
        );
        assert!(!entries.by_id.contains_key("b"), "26 bytes are too many");
        assert_eq!((entries.by_age.len(), entries.bytes), (2, 16));

        entries.evict_older_than(MAX_AGE, start + Duration::from_mins(62));
        assert!(!entries.by_id.contains_key("c"), "an hour is too long");
        assert!(entries.by_id.contains_key("d"));
        entries.evict_older_than(MAX_AGE, start + Duration::from_mins(63));
        assert_eq!(
            (entries.by_id.len(), entries.by_age.len(), entries.bytes),
            (0, 0, 0)
        );
    }
}
