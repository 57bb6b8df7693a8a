//! Texts that a thread has counted lately. Conversations are sent again with every turn, and system prompts with every
//! request: they are hashed instead of counted.
//!
//! The hash is `SipHash` with a random key of the process, so that nobody can make up two texts with one hash. It has the
//! sender in it: how long a request takes tells nobody what others have sent.

use std::{
    cell::Cell,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::LazyLock,
};

/// Texts of fewer bytes are counted as quickly as they are hashed.
const SHORTEST: usize = 128;
/// How many a thread remembers: 32 KiB of them.
const REMEMBERED: usize = 2048;

static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

thread_local! {
    /// The hash of a text and its tokens. No text that is remembered has none.
    static COUNTS: [Cell<(u64, u64)>; REMEMBERED] = const { [const { Cell::new((0, 0)) }; REMEMBERED] };
}

/// What the texts of one sender have in common.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sender(u64);

impl Sender {
    pub fn new(id: &str) -> Self {
        Self(KEY.hash_one(id))
    }
}

/// The tokens of a text as this thread counted them before, or as `count` does now; which says too whether it would
/// always count the same.
pub fn tokens(sender: Sender, text: &str, count: impl FnOnce() -> (u64, bool)) -> u64 {
    if text.len() < SHORTEST {
        return count().0;
    }
    let mut hasher = KEY.build_hasher();
    hasher.write_u64(sender.0);
    hasher.write(text.as_bytes());
    let hash = hasher.finish();
    let place = usize::try_from(hash % REMEMBERED as u64).unwrap_or(0);
    COUNTS.with(|counts| {
        let slot = &counts[place];
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
