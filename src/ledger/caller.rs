//! Who a request comes from, and how lately that was looked up.

use crate::{base::keys::KeyDigest, catalog::Plan};

/// Who a request comes from.
#[derive(Clone, Debug)]
pub struct Caller {
    pub account_id: String,
    pub key_id: String,
    pub plan: Plan,
    pub account_closed: bool,
    /// When its credit begins to expire, as it was when it was looked up. A ledger of our own is asked instead:
    /// [`super::Ledger::credits_expire_at`].
    pub credits_expire_at: Option<i64>,
    /// What it is looked up by.
    pub digest: KeyDigest,
    pub seen: Seen,
}

/// What is known of a caller is as old as these versions. A hold is refused where they are no longer
/// the latest; of settings only where they are from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub account: i64,
    pub settings: i64,
    /// It was asked for just now, and is not from memory.
    pub fresh: bool,
}

impl Seen {
    /// Of a ledger whose memory is never behind.
    pub fn fresh() -> Self {
        Self {
            account: 0,
            settings: 0,
            fresh: true,
        }
    }
}
