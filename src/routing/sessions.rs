//! State of conversations for the `turn` router: the last target, and the tokens that each provider may have cached.
//!
//! In memory only, limited in number and age. A conversation that was evicted is treated as new.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};

use super::scorer::Scores;
use crate::catalog::{Model, Turn};

/// How many bytes of each part are hashed. Together with its length they suffice to distinguish conversations.
const HASHED: usize = 8_192;

/// Identifies a conversation by a hash of its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey([u8; 16]);

impl SessionKey {
    /// Conversations with equal parts have equal keys.
    pub(crate) fn of<const N: usize>(parts: [&str; N]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part.len().to_le_bytes());
            let start = part.floor_char_boundary(HASHED);
            hash.update(&part[..start]);
        }
        let mut key = [0; 16];
        key.copy_from_slice(&hash.finalize()[..16]);
        Self(key)
    }
}

/// The state of a conversation.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The model that served the last turn.
    pub model: String,
    pub scores: Scores,
    /// For each target, the prompt tokens that its provider has read, and when.
    cached: HashMap<String, (u64, Instant)>,
    turns: u64,
    /// The turn of the last change to a weaker target.
    downgraded_at: Option<u64>,
    last_use: Instant,
}

impl Session {
    /// The prompt tokens that the model's provider may have cached.
    pub(crate) fn cached_tokens(&self, model: &str) -> u64 {
        self.cached.get(model).map_or(0, |(tokens, _)| *tokens)
    }

    /// Turns since the last change to a weaker target; `u64::MAX` if there was none.
    pub(crate) fn turns_since_downgrade(&self) -> u64 {
        self.downgraded_at.map_or(u64::MAX, |at| self.turns - at)
    }
}

/// A turn of a conversation that has not been served yet.
#[derive(Clone, Debug)]
pub(crate) struct PendingTurn {
    pub key: SessionKey,
    pub settings: Turn,
    pub scores: Scores,
    pub prompt_tokens: u64,
    /// Whether the last message is a tool's output.
    pub after_tool: bool,
    /// The quality tier of the model that served the previous turn.
    pub before: Option<u8>,
}

/// The result of looking up a conversation.
#[derive(Debug, Default)]
pub(crate) struct SessionLookup {
    pub session: Option<Session>,
    /// The model of the last turn, if the session has expired.
    pub expired_model: Option<String>,
}

/// The conversations of each hybrid.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<String, HybridSessions>>);

/// Older sessions are evicted even if there is room for them.
const MAX_AGE: Duration = Duration::from_hours(24);

#[derive(Default)]
struct HybridSessions {
    sessions: HashMap<SessionKey, (u64, Session)>,
    /// Keys by the stamp of their last use, the oldest first.
    order: BTreeMap<u64, SessionKey>,
    last_stamp: u64,
}

impl Sessions {
    fn memory(&self) -> MutexGuard<'_, HashMap<String, HybridSessions>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up a conversation without changing its last use.
    pub(crate) fn find(
        &self,
        hybrid: &str,
        key: SessionKey,
        now: Instant,
        ttl: Duration,
    ) -> SessionLookup {
        let memory = self.memory();
        let found = memory.get(hybrid);
        let Some((_, session)) = found.and_then(|memory| memory.sessions.get(&key)) else {
            return SessionLookup::default();
        };
        let is_old = |since: Instant| now.saturating_duration_since(since) > ttl;
        if is_old(session.last_use) {
            return SessionLookup {
                session: None,
                expired_model: Some(session.model.clone()),
            };
        }
        let mut session = session.clone();
        session.cached.retain(|_, (_, since)| !is_old(*since));
        SessionLookup {
            session: Some(session),
            expired_model: None,
        }
    }

    /// Records that `model` served a turn. Of each hybrid the latest conversations are kept, up to its limit.
    pub(crate) fn remember(&self, hybrid: &str, turn: &PendingTurn, model: &Model, now: Instant) {
        let mut memory = self.memory();
        let memory = memory.entry(hybrid.to_owned()).or_default();
        memory.last_stamp += 1;
        let (stamp, key, ttl) = (memory.last_stamp, turn.key, turn.settings.ttl);
        let before = memory.sessions.remove(&key);
        let before = before.map(|(stamp, session)| {
            memory.order.remove(&stamp);
            session
        });
        let before = before.filter(|one| now.saturating_duration_since(one.last_use) <= ttl);
        let mut session = before.unwrap_or_else(|| Session {
            model: String::new(),
            scores: turn.scores,
            cached: HashMap::new(),
            turns: 0,
            downgraded_at: None,
            last_use: now,
        });
        // A tool's output belongs to the turn in which the tool was called.
        session.turns += u64::from(!turn.after_tool);
        if turn
            .before
            .is_some_and(|before| model.quality_tier < before)
        {
            session.downgraded_at = Some(session.turns);
        }
        model.id.clone_into(&mut session.model);
        session.scores = turn.scores;
        session.last_use = now;
        let read = (turn.prompt_tokens, now);
        session.cached.insert(model.id.clone(), read);
        memory.sessions.insert(key, (stamp, session));
        memory.order.insert(stamp, key);
        memory.evict(turn.settings.sessions.max(1), now);
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        let memory = self.memory();
        memory.values().map(|memory| memory.sessions.len()).sum()
    }
}

impl HybridSessions {
    /// Removes the oldest sessions beyond `bound`, and those older than [`MAX_AGE`].
    fn evict(&mut self, bound: usize, now: Instant) {
        while let Some((_, key)) = self.order.first_key_value() {
            let age = |(_, oldest): &(u64, Session)| now.saturating_duration_since(oldest.last_use);
            let oldest = self.sessions.get(key).map(age);
            if self.sessions.len() <= bound && oldest.is_some_and(|age| age <= MAX_AGE) {
                return;
            }
            self.sessions.remove(key);
            self.order.pop_first();
        }
    }
}
