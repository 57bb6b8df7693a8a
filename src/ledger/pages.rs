//! What pages show: sums by day, lists that go on from page to page, what is left of grants.
//!
//! A list goes on after its last line and never after so many lines: what is added meanwhile neither
//! repeats a line nor hides one. An account that is not there has nothing to show.

use std::collections::HashMap;

use super::{Account, Balances, Call, CallId, Key, Ledger, LedgerError, NewAccount, Outcome};
use crate::base::money::NanoUsd;

/// How many lines a page has at most.
const MAX_LINES: usize = 10_000;
/// How long a text to search for may be, in bytes: as the longest address of an e-mail.
const MAX_TEXT: usize = 320;

/// One key's calls with one model on one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayUse {
    /// Of UTC, e.g. `2026-11-16`.
    pub day: String,
    pub key_id: String,
    pub model: String,
    /// All that were begun, whatever became of them.
    pub calls: u64,
    /// Those that were charged; what follows is theirs.
    pub charged: u64,
    pub prompt: u64,
    pub cached: u64,
    pub completion: u64,
    pub reasoning: u64,
    pub cost: NanoUsd,
    /// When the last of all of them ended.
    pub last_ms: i64,
}

/// Which calls are wanted, newest first; without an account those of all.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallsPage<'a> {
    pub account_id: Option<&'a str>,
    pub key_id: Option<&'a str>,
    pub model: Option<&'a str>,
    pub outcome: Option<Outcome>,
    /// The last one of the page before: when it ended, and its number.
    pub before: Option<(i64, CallId)>,
    pub limit: usize,
}

/// A line of the books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub seq: i64,
    pub kind: EntryKind,
    /// The grant, or the call (`call_…`).
    pub reference: String,
    pub delta: NanoUsd,
    pub balance_after: NanoUsd,
    /// In seconds.
    pub at: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    Grant,
    Charge,
    /// What was free of a grant when it expired.
    Expiry,
    /// A charge that was taken back.
    Reversal,
}

/// What is left of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantLeft {
    pub grant_id: String,
    /// With what is held of it.
    pub left: NanoUsd,
    /// Set aside for calls that are running.
    pub held: NanoUsd,
    pub expires_at: Option<i64>,
}

/// An account that was searched for, and how it is doing.
#[derive(Clone, Debug)]
pub struct AccountFound {
    pub account: Account,
    pub balances: Balances,
    /// Nothing new is begun, because its books do not add up.
    pub frozen: bool,
}

/// What pages show.
impl Ledger {
    /// The account's calls added up, from one day to another (`2026-11-16`), both included; by day, then
    /// model, then key.
    pub async fn usage_days(
        &self,
        account_id: &str,
        from_day: &str,
        to_day: &str,
    ) -> Result<Vec<DayUse>, LedgerError> {
        if is_nobodys(&[account_id, from_day, to_day]) {
            return Ok(Vec::new());
        }
        match self {
            Self::Embedded(ledger) => ledger.usage_days(account_id, from_day, to_day).await,
            Self::Shared(ledger) => ledger.usage_days(account_id, from_day, to_day).await,
        }
    }

    /// When each key of the account was last used, in milliseconds; keys that never were are missing.
    pub async fn last_used(&self, account_id: &str) -> Result<HashMap<String, i64>, LedgerError> {
        if is_nobodys(&[account_id]) {
            return Ok(HashMap::new());
        }
        match self {
            Self::Embedded(ledger) => ledger.last_used(account_id).await,
            Self::Shared(ledger) => ledger.last_used(account_id).await,
        }
    }

    /// One page of calls. They come without how hybrids decided, which is long: see [`Self::call`].
    pub async fn calls_page(&self, page: &CallsPage<'_>) -> Result<Vec<Call>, LedgerError> {
        let mut page = CallsPage {
            limit: page.limit.min(MAX_LINES),
            ..*page
        };
        let names = [page.account_id, page.key_id, page.model];
        if names.into_iter().flatten().any(|name| is_nobodys(&[name])) {
            return Ok(Vec::new());
        }
        // Whose key it is leads to its calls.
        let owner = match (page.account_id, page.key_id) {
            (None, Some(key_id)) => match self.key(key_id).await {
                Ok(key) => Some(key.account_id),
                Err(LedgerError::NotFound { .. }) => return Ok(Vec::new()),
                Err(error) => return Err(error),
            },
            _ => None,
        };
        page.account_id = page.account_id.or(owner.as_deref());
        match self {
            Self::Embedded(ledger) => ledger.calls_page(&page).await,
            Self::Shared(ledger) => ledger.calls_page(&page).await,
        }
    }

    /// The whole story of a call.
    pub async fn call(&self, id: CallId) -> Result<Option<Call>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.call(id).await,
            Self::Shared(ledger) => ledger.call(id).await,
        }
    }

    /// One page of the account's books, newest first; `before` is the last line of the page before.
    pub async fn entries_page(
        &self,
        account_id: &str,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Entry>, LedgerError> {
        if is_nobodys(&[account_id]) {
            return Ok(Vec::new());
        }
        let (before, limit) = (before.unwrap_or(i64::MAX), limit.min(MAX_LINES));
        match self {
            Self::Embedded(ledger) => ledger.entries_page(account_id, before, limit).await,
            Self::Shared(ledger) => ledger.entries_page(account_id, before, limit).await,
        }
    }

    /// What is left of each grant that is not used up or expired, in the order of use.
    pub async fn grants_left(&self, account_id: &str) -> Result<Vec<GrantLeft>, LedgerError> {
        match self {
            Self::Embedded(ledger) => Ok(ledger.grants_left(account_id)),
            Self::Shared(ledger) => ledger.grants_left(account_id).await,
        }
    }

    /// Accounts whose ID begins with this text, or whose e-mail or name has it somewhere, newest first;
    /// all of them for an empty text. `before` is the last one of the page before: when it was made, and
    /// its ID.
    pub async fn find_accounts(
        &self,
        text: &str,
        before: Option<(i64, String)>,
        limit: usize,
    ) -> Result<Vec<AccountFound>, LedgerError> {
        let last = before.as_ref().map_or("", |(_, id)| id);
        if text.len() > MAX_TEXT || is_nobodys(&[text, last]) {
            return Ok(Vec::new());
        }
        let limit = limit.min(MAX_LINES);
        match self {
            Self::Embedded(ledger) => ledger.find_accounts(text, before, limit).await,
            Self::Shared(ledger) => ledger.find_accounts(text, before, limit).await,
        }
    }

    pub async fn key(&self, id: &str) -> Result<Key, LedgerError> {
        if is_nobodys(&[id]) {
            let id = id.to_owned();
            return Err(LedgerError::NotFound { what: "key", id });
        }
        match self {
            Self::Embedded(ledger) => ledger.key(id),
            Self::Shared(ledger) => ledger.key(id).await,
        }
    }

    /// Makes the account with this ID, unless it is there already: a sign-up that is repeated makes one.
    pub async fn ensure_account(&self, id: &str, new: NewAccount) -> Result<Account, LedgerError> {
        let account = new.made_as(id.to_owned(), self.clock().now())?;
        match self {
            Self::Embedded(ledger) => ledger.ensure_account(account).await,
            Self::Shared(ledger) => ledger.ensure_account(account).await,
        }
    }
}

/// No name has a zero byte, and PostgreSQL will not even look for one.
fn is_nobodys(names: &[&str]) -> bool {
    names.iter().any(|name| name.contains('\0'))
}

impl EntryKind {
    const ALL: [Self; 4] = [Self::Grant, Self::Charge, Self::Expiry, Self::Reversal];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::Charge => "charge",
            Self::Expiry => "expiry",
            Self::Reversal => "reversal",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Calls are kept by their number and shown by their name.
    pub(super) fn shown(self, reference: String) -> String {
        match (self, reference.parse()) {
            (Self::Charge | Self::Reversal, Ok(number)) => CallId(number).to_string(),
            _ => reference,
        }
    }
}
