//! The conversations of the `turn` router: which target answered last, and what its provider has read.
//!
//! In memory only, bounded in number and in time: what is forgotten is chosen anew.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};

use super::scorer::Scores;
use crate::catalog::{Model, Turn};

/// So many bytes of each part tell conversations apart; with its length they are enough.
const HASHED: usize = 8_192;

/// Names a conversation by its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey([u8; 16]);

impl SessionKey {
    /// What the same parts are known of is the same conversation.
    pub fn of<const N: usize>(parts: [&str; N]) -> Self {
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

/// What is known of a conversation.
#[derive(Clone, Debug)]
pub struct Session {
    /// Who answered last.
    pub model: String,
    pub scores: Scores,
    /// The tokens that each target's provider has read.
    warm: HashMap<String, (u64, Instant)>,
    turns: u64,
    /// At which turn it last changed to a weaker target.
    down_at: Option<u64>,
    last_use: Instant,
}

impl Session {
    pub fn warm(&self, model: &str) -> u64 {
        self.warm.get(model).map_or(0, |(tokens, _)| *tokens)
    }

    pub fn turns_since_down(&self) -> u64 {
        self.down_at.map_or(u64::MAX, |at| self.turns - at)
    }
}

/// A turn of a conversation, before it is known who answers.
#[derive(Clone, Debug)]
pub struct Turning {
    pub key: SessionKey,
    pub settings: Turn,
    pub scores: Scores,
    pub prompt_tokens: u64,
    /// It goes on with what a tool said.
    pub after_tool: bool,
    /// The quality tier of who answered before.
    pub before: Option<u8>,
}

/// What was found of a conversation.
#[derive(Debug, Default)]
pub struct Found {
    pub session: Option<Session>,
    /// There was one, and it was left for too long: who answered last in it.
    pub left_at: Option<String>,
}

/// For each hybrid, its conversations.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<String, Memory>>);

/// What is older is forgotten, if there is room for it or not.
const LONGEST: Duration = Duration::from_hours(24);

#[derive(Default)]
struct Memory {
    sessions: HashMap<SessionKey, (u64, Session)>,
    /// By their last use, the oldest first.
    order: BTreeMap<u64, SessionKey>,
    used: u64,
}

impl Sessions {
    fn memory(&self) -> MutexGuard<'_, HashMap<String, Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A look that changes nothing.
    pub fn find(&self, hybrid: &str, key: SessionKey, now: Instant, ttl: Duration) -> Found {
        let memory = self.memory();
        let found = memory.get(hybrid);
        let Some((_, session)) = found.and_then(|memory| memory.sessions.get(&key)) else {
            return Found::default();
        };
        let is_old = |since: Instant| now.saturating_duration_since(since) > ttl;
        if is_old(session.last_use) {
            return Found {
                session: None,
                left_at: Some(session.model.clone()),
            };
        }
        let mut session = session.clone();
        session.warm.retain(|_, (_, since)| !is_old(*since));
        Found {
            session: Some(session),
            left_at: None,
        }
    }

    /// A turn was answered by `model`. The latest conversations are kept, as many as the hybrid may have.
    pub fn remember(&self, hybrid: &str, turn: &Turning, model: &Model, now: Instant) {
        let mut memory = self.memory();
        let memory = memory.entry(hybrid.to_owned()).or_default();
        memory.used += 1;
        let (stamp, key, ttl) = (memory.used, turn.key, turn.settings.ttl);
        let before = memory.sessions.remove(&key);
        let before = before.map(|(stamp, session)| {
            memory.order.remove(&stamp);
            session
        });
        let before = before.filter(|one| now.saturating_duration_since(one.last_use) <= ttl);
        let mut session = before.unwrap_or_else(|| Session {
            model: String::new(),
            scores: turn.scores,
            warm: HashMap::new(),
            turns: 0,
            down_at: None,
            last_use: now,
        });
        // What a tool says is part of the same turn.
        session.turns += u64::from(!turn.after_tool);
        if turn
            .before
            .is_some_and(|before| model.quality_tier < before)
        {
            session.down_at = Some(session.turns);
        }
        model.id.clone_into(&mut session.model);
        session.scores = turn.scores;
        session.last_use = now;
        let read = (turn.prompt_tokens, now);
        session.warm.insert(model.id.clone(), read);
        memory.sessions.insert(key, (stamp, session));
        memory.order.insert(stamp, key);
        memory.forget(turn.settings.sessions.max(1), now);
    }

    pub fn count(&self) -> usize {
        let memory = self.memory();
        memory.values().map(|memory| memory.sessions.len()).sum()
    }
}

impl Memory {
    /// All but the latest.
    fn forget(&mut self, bound: usize, now: Instant) {
        while let Some((_, key)) = self.order.first_key_value() {
            let age = |(_, oldest): &(u64, Session)| now.saturating_duration_since(oldest.last_use);
            let oldest = self.sessions.get(key).map(age);
            if self.sessions.len() <= bound && oldest.is_some_and(|age| age <= LONGEST) {
                return;
            }
            self.sessions.remove(key);
            self.order.pop_first();
        }
    }
}
