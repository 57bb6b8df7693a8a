//! What a function call needs on its way back, kept by our ID for it.
//!
//! A chat has an ID, a name and arguments for a call, and nothing else that a client would send
//! back. Gemini 3 and later sign a call (`thoughtSignature`) and refuse a history in which the
//! signature is missing. So it is kept here, in memory: for an hour, for the latest ten thousand
//! calls, and lost with the process. For a call that is not here any more [`UNKNOWN`] stands in:
//! Google's own word for a history that comes from elsewhere.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::base::keys::random_id;

const MAX_CALLS: usize = 10_000;
const MAX_BYTES: usize = 64 << 20;
const MAX_AGE: Duration = Duration::from_hours(1);

/// The published signature of a call whose own is not known.
pub const UNKNOWN: &str = "skip_thought_signature_validator";

/// What came with a call and goes back with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Gemini's own ID for the call; most have none.
    pub id: Option<String>,
    pub signature: Option<String>,
}

#[derive(Debug, Default)]
pub struct Calls(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    by_id: HashMap<String, Origin>,
    /// The oldest first.
    ages: VecDeque<(Instant, String)>,
    bytes: usize,
}

impl Calls {
    /// Keeps what came with a call; gives the ID by which it is found again.
    pub fn keep(&self, origin: Origin) -> String {
        let id = random_id("call_");
        if origin != Origin::default() {
            let now = Instant::now();
            self.locked()
                .keep(id.clone(), origin, now, MAX_CALLS, MAX_BYTES);
        }
        id
    }

    /// What came with the call; nothing where nothing did, or where it is not here any more.
    pub fn find(&self, id: &str) -> Origin {
        let mut kept = self.locked();
        kept.forget_older_than(MAX_AGE, Instant::now());
        kept.by_id.get(id).cloned().unwrap_or_default()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Kept> {
        // Every change is complete once it is made, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn keep(
        &mut self,
        id: String,
        origin: Origin,
        now: Instant,
        max_calls: usize,
        max_bytes: usize,
    ) {
        self.forget_older_than(MAX_AGE, now);
        self.bytes += size(&id, &origin);
        self.by_id.insert(id.clone(), origin);
        self.ages.push_back((now, id));
        while self.by_id.len() > max_calls || self.bytes > max_bytes {
            self.forget_oldest();
        }
    }

    fn forget_older_than(&mut self, age: Duration, now: Instant) {
        while let Some((kept_at, _)) = self.ages.front()
            && now.duration_since(*kept_at) >= age
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, id)) = self.ages.pop_front() else {
            return;
        };
        if let Some(origin) = self.by_id.remove(&id) {
            self.bytes -= size(&id, &origin);
        }
    }
}

/// The bytes of one call, its ID twice.
fn size(id: &str, origin: &Origin) -> usize {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    2 * id.len() + length(&origin.id) + length(&origin.signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(signature: &str) -> Origin {
        Origin {
            id: None,
            signature: Some(signature.to_owned()),
        }
    }

    #[test]
    fn a_call_is_found_by_the_id_it_was_given() {
        let calls = Calls::default();
        let (first, second) = (calls.keep(signed("one")), calls.keep(signed("two")));
        assert!(first.starts_with("call_") && first.len() == 29, "{first}");
        assert_eq!(calls.find(&first), signed("one"));
        assert_eq!(calls.find(&second), signed("two"));
        assert_eq!(calls.find("call_of_somebody_else"), Origin::default());
        let unsigned = calls.keep(Origin::default());
        assert_eq!(calls.find(&unsigned), Origin::default());
        assert_eq!(calls.locked().ages.len(), 2, "nothing to keep");
    }

    #[test]
    fn the_oldest_are_forgotten_by_number_by_size_and_by_age() {
        let start = Instant::now();
        let mut kept = Kept::default();
        for (at, id) in (0..).zip(["a", "b", "c"]) {
            let now = start + Duration::from_mins(at);
            kept.keep(id.into(), signed("12345678"), now, 2, 1_000);
        }
        assert!(!kept.by_id.contains_key("a"), "three are too many");
        assert_eq!((kept.ages.len(), kept.bytes), (2, 20));

        kept.keep(
            "d".into(),
            signed("1234"),
            start + Duration::from_mins(3),
            9,
            17,
        );
        assert!(!kept.by_id.contains_key("b"), "26 bytes are too many");
        assert_eq!((kept.ages.len(), kept.bytes), (2, 16));

        kept.forget_older_than(MAX_AGE, start + Duration::from_mins(62));
        assert!(!kept.by_id.contains_key("c"), "an hour is too long");
        assert!(kept.by_id.contains_key("d"));
        kept.forget_older_than(MAX_AGE, start + Duration::from_mins(63));
        assert_eq!((kept.by_id.len(), kept.ages.len(), kept.bytes), (0, 0, 0));
    }
}
