//! Cache of the token counts of longer texts, one for each thread. Conversations are sent again with every turn, and
//! system prompts with every request: hashing them is faster than counting.
//!
//! The hash is `SipHash` with a random key of the process, so that clients cannot construct two texts with one hash. It
//! includes the sender, so that the time of a request does not reveal which texts others have sent.

use std::{
    cell::Cell,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::LazyLock,
};

/// Shortest text that is cached, in bytes. Shorter ones are counted as fast as they are hashed.
const SHORTEST: usize = 128;
/// Slots for each thread: 32 KiB.
const SLOTS: usize = 2048;

static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

thread_local! {
    /// The hash of a text and its tokens. 0 tokens mark an empty slot, because no cached text has none.
    static COUNTS: [Cell<(u64, u64)>; SLOTS] = const { [const { Cell::new((0, 0)) }; SLOTS] };
}

/// The sender of texts, as a hash that separates the cached texts of different senders.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sender(u64);

impl Sender {
    pub(crate) fn new(id: &str) -> Self {
        Self(KEY.hash_one(id))
    }
}

/// The token count of a text: from the cache, or from `count`. That also returns whether its result is certain: only
/// then it is cached.
pub(crate) fn tokens(sender: Sender, text: &str, count: impl FnOnce() -> (u64, bool)) -> u64 {
    if text.len() < SHORTEST {
        return count().0;
    }
    let mut hasher = KEY.build_hasher();
    hasher.write_u64(sender.0);
    hasher.write(text.as_bytes());
    let hash = hasher.finish();
    let at = usize::try_from(hash % SLOTS as u64).unwrap_or(0);
    COUNTS.with(|counts| {
        let slot = &counts[at];
        match slot.get() {
            (found, tokens) if found == hash && tokens > 0 => tokens,
            _ => {
                let (tokens, is_certain) = count();
                if is_certain {
                    slot.set((hash, tokens));
                }
                tokens
            }
        }
    })
}
