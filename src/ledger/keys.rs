//! API keys: creation within a bound, states, and lists.
//!
//! Requests need only live keys, which are active or disabled. Deleted ones stay in the store, because the history
//! refers to them, but not in memory.

use super::{BudgetScope, Key, KeyChange, KeyState, Ledger, LedgerError, NewKey, pages::has_nul};
use crate::base::keys::{ApiKey, KeyDigest};

/// Default for the most live keys of an account: more than one of many people and services needs.
pub const MAX_KEYS: u32 = 100;
/// Most keys of a page.
const MAX_ROWS: usize = 1_000;

/// Which keys a page lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyFilter {
    All,
    Live,
    Deleted,
}

impl KeyFilter {
    /// The condition in SQL.
    pub(super) fn condition(self) -> &'static str {
        match self {
            Self::All => "TRUE",
            Self::Live => "state <> 'deleted'",
            Self::Deleted => "state = 'deleted'",
        }
    }
}

/// Filter and cursor of a page of an account's keys, newest first.
#[derive(Clone, Debug)]
pub(crate) struct KeysPage<'a> {
    pub account_id: &'a str,
    pub filter: KeyFilter,
    /// Only keys that this person has made.
    pub member_id: Option<&'a str>,
    /// Cursor: when the last key of the previous page was created, and its ID.
    pub before: Option<(i64, String)>,
    pub limit: usize,
}

impl Ledger {
    /// Creates a key, unless the account has `max` live keys. Only its digest is stored, so the returned secret cannot be
    /// shown again.
    pub async fn create_key(
        &self,
        account_id: &str,
        new: NewKey,
        max: u32,
    ) -> Result<(Key, ApiKey), LedgerError> {
        let (key, secret) = Key::generate(account_id, new, self.clock().now());
        let key = match self {
            Self::Embedded(ledger) => ledger.create_key(key, max).await?,
            Self::Shared(ledger) => ledger.create_key(key, max).await?,
        };
        Ok((key, secret))
    }

    /// Changes the state of a key; a deleted key stays deleted.
    pub async fn set_key_state(&self, id: &str, state: KeyState) -> Result<Key, LedgerError> {
        let key = match self {
            Self::Embedded(ledger) => ledger.set_key_state(id, state).await?,
            Self::Shared(ledger) => ledger.set_key_state(id, state).await?,
        };
        if state == KeyState::Deleted {
            self.remove_budgets_of(&key.account_id, BudgetScope::Key, id)
                .await;
        }
        Ok(key)
    }

    /// Changes the name, the project or the terms of a live key, for its next call on.
    pub(crate) async fn change_key(&self, id: &str, change: KeyChange) -> Result<Key, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.change_key(id, change).await,
            Self::Shared(ledger) => ledger.change_key(id, change).await,
        }
    }

    /// The account's live keys, oldest first.
    pub(crate) async fn keys(&self, account_id: &str) -> Result<Vec<Key>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.keys(account_id),
            Self::Shared(ledger) => ledger.keys(account_id).await,
        }
    }

    /// One page of the account's keys.
    pub(crate) async fn keys_page(&self, mut page: KeysPage<'_>) -> Result<Vec<Key>, LedgerError> {
        let last = page.before.as_ref().map_or("", |(_, id)| id);
        let member_id = page.member_id.unwrap_or_default();
        if has_nul(&[page.account_id, last, member_id]) {
            return Ok(Vec::new());
        }
        page.limit = page.limit.min(MAX_ROWS);
        match self {
            Self::Embedded(ledger) => ledger.keys_page(page).await,
            Self::Shared(ledger) => ledger.keys_page(page).await,
        }
    }

    /// The keys with these IDs, deleted ones too, in no particular order; unknown IDs are left out.
    pub(crate) async fn keys_with_ids(
        &self,
        ids: impl IntoIterator<Item = &str>,
    ) -> Result<Vec<Key>, LedgerError> {
        let mut ids: Vec<_> = ids.into_iter().filter(|id| !has_nul(&[*id])).collect();
        ids.sort_unstable();
        ids.dedup();
        let ids = ids.into_iter().map(str::to_owned).collect();
        match self {
            Self::Embedded(ledger) => ledger.keys_with_ids(ids).await,
            Self::Shared(ledger) => ledger.keys_with_ids(ids).await,
        }
    }

    /// The keys with these secrets, also if they are disabled or deleted or have expired; of a rotated key also the secret
    /// before.
    pub(crate) async fn keys_with_digests(
        &self,
        digests: Vec<KeyDigest>,
    ) -> Result<Vec<Key>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.keys_with_digests(digests).await,
            Self::Shared(ledger) => ledger.keys_with_digests(digests).await,
        }
    }

    /// The key with this ID, also if it is deleted.
    pub(crate) async fn key(&self, id: &str) -> Result<Key, LedgerError> {
        let found = self.keys_with_ids([id]).await?.pop();
        found.ok_or_else(|| LedgerError::NotFound {
            what: "key",
            id: id.to_owned(),
        })
    }
}
