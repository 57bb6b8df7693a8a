//! The caller of a request: account, key and plan, with the version of the data they were read from.

use std::sync::Arc;

use super::{KeyTerms, Payer};
use crate::{base::keys::KeyDigest, catalog::Plan};

/// The authenticated caller of a request.
#[derive(Clone, Debug)]
pub struct Caller {
    pub account_id: String,
    /// The key, as the payer of the call.
    pub payer: Arc<Payer>,
    pub terms: Arc<KeyTerms>,
    pub plan: Plan,
    pub account_closed: bool,
    /// When the account's credit begins to expire, as of the lookup; always `None` from the embedded ledger. Use
    /// [`super::Ledger::credits_expire_at`].
    pub credits_expire_at: Option<i64>,
    /// Digest of the key, for another lookup.
    pub digest: KeyDigest,
    pub seen: Seen,
}

/// The versions of account and settings that a caller was read at.
///
/// A shared ledger refuses a hold as stale if the account's version has changed. It compares the version of the
/// settings only if the caller came from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub account: i64,
    pub settings: i64,
    /// The caller was read from the store, not from the cache.
    pub fresh: bool,
}

impl Seen {
    /// For the embedded ledger, whose memory is always current.
    pub(crate) fn fresh() -> Self {
        Self {
            account: 0,
            settings: 0,
            fresh: true,
        }
    }
}
