//! Queries of the portal and the console: sums by day, paged lists, and what is left of grants.
//!
//! Lists are paged by cursor (the last row of the previous page), not by offset, so rows added meanwhile neither repeat
//! nor hide a row. An unknown account yields empty lists.

use std::collections::HashMap;

use super::{Account, Balances, Call, CallId, Ledger, LedgerError, NewAccount, conditions::Sql};
use crate::base::money::NanoUsd;

/// The most rows of a page.
pub(super) const MAX_ROWS: usize = 10_000;
/// The longest search text in bytes: the length of the longest email address.
const MAX_TEXT: usize = 320;

/// Sums of one key's calls with one model on one day, or of more: see [`SumsOf`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DayUse {
    /// Day in UTC, e.g. `2026-11-16`.
    pub day: String,
    pub key_id: String,
    /// `default` for the default project.
    pub project_id: String,
    pub model: String,
    /// All admitted calls, whatever their outcome.
    pub calls: u64,
    /// The charged calls; the sums below are of these.
    pub charged: u64,
    pub prompt: u64,
    pub cached: u64,
    pub completion: u64,
    pub reasoning: u64,
    pub cost: NanoUsd,
    /// When the latest of all these calls ended.
    pub last_ms: i64,
}

/// What the sums of a day are of. Each row that is not read makes a page faster: an account with ten keys and four models
/// has forty a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SumsOf {
    /// One key's calls with one model in one project, as they are stored.
    Each,
    Day,
    Model,
    Key,
    Project,
}

impl SumsOf {
    /// The query for an account's sums from one day to another, which are its parameters. Columns that are not grouped by
    /// are empty.
    pub(super) fn query(self, sql: Sql) -> String {
        let (sign, big) = match sql {
            Sql::Lite => ("?", ""),
            Sql::Postgres => ("$", "::bigint"),
        };
        let of = format!(
            "FROM usage_days WHERE account_id = {sign}1 AND day >= {sign}2 AND day <= {sign}3"
        );
        let column = match self {
            Self::Each => {
                return format!(
                    "SELECT day, key_id, model, calls, charged_calls, prompt_tokens, cached_tokens, completion_tokens,
                         reasoning_tokens, cost_nano_usd, last_ended_at_ms, project_id
                     {of} ORDER BY day, model, key_id, project_id"
                );
            }
            Self::Day => None,
            Self::Model => Some("model"),
            Self::Key => Some("key_id"),
            Self::Project => Some("project_id"),
        };
        let shown = |name: &'static str| match column {
            Some(column) if column == name => name,
            _ => "CAST('' AS text)",
        };
        let by = column.map_or_else(|| "day".to_owned(), |column| format!("day, {column}"));
        format!(
            "SELECT day, {}, {}, sum(calls){big}, sum(charged_calls){big}, sum(prompt_tokens){big}, sum(cached_tokens){big},
                 sum(completion_tokens){big}, sum(reasoning_tokens){big}, sum(cost_nano_usd){big}, max(last_ended_at_ms), {}
             {of} GROUP BY {by} ORDER BY {by}",
            shown("key_id"),
            shown("model"),
            shown("project_id")
        )
    }
}

/// The calls that a developer sees: with keys that they made, and of projects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenCalls {
    pub member_id: String,
    pub project_ids: Vec<String>,
}

impl SeenCalls {
    /// Whether they include the calls of a member's key in a project.
    pub(crate) fn include(&self, member_id: Option<&str>, project_id: Option<&str>) -> bool {
        member_id == Some(&self.member_id)
            || project_id.is_some_and(|id| self.project_ids.iter().any(|seen| seen == id))
    }
}

/// A ledger entry: one change of an account's balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub seq: i64,
    pub kind: EntryKind,
    /// The grant's ID, or the call's (`call_…`).
    pub reference: String,
    pub delta: NanoUsd,
    pub balance_after: NanoUsd,
    /// In seconds since 1970.
    pub at: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Grant,
    Charge,
    /// The part of a grant that was not held when it expired.
    Expiry,
    /// A charge that was taken back.
    Reversal,
    /// The balance brought forward from calls and entries that were pruned; its reference is the first day that was
    /// not.
    Opening,
}

/// What is left of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrantLeft {
    pub grant_id: String,
    /// Includes the part that is held.
    pub left: NanoUsd,
    /// Held by running calls.
    pub held: NanoUsd,
    pub expires_at: Option<i64>,
}

/// An account found by a search, with its credit.
#[derive(Clone, Debug)]
pub(crate) struct AccountFound {
    pub account: Account,
    pub balances: Balances,
    /// The account starts no new calls, because its entries do not add up.
    pub frozen: bool,
}

/// Queries for pages.
impl Ledger {
    /// Sums of the account's calls from one day (`2026-11-16`) to another, both included; by day, then by what they are of
    /// (model, then key).
    pub(crate) async fn usage_days(
        &self,
        account_id: &str,
        (from_day, to_day): (&str, &str),
        sums_of: SumsOf,
    ) -> Result<Vec<DayUse>, LedgerError> {
        if has_nul(&[account_id, from_day, to_day]) {
            return Ok(Vec::new());
        }
        let days = (from_day, to_day);
        match self {
            Self::Embedded(ledger) => ledger.usage_days(account_id, days, sums_of).await,
            Self::Shared(ledger) => ledger.usage_days(account_id, days, sums_of).await,
        }
    }

    /// When each of the account's keys was last used, in milliseconds; keys that never were are missing.
    pub(crate) async fn last_used(
        &self,
        account_id: &str,
    ) -> Result<HashMap<String, i64>, LedgerError> {
        if has_nul(&[account_id]) {
            return Ok(HashMap::new());
        }
        match self {
            Self::Embedded(ledger) => ledger.last_used(account_id).await,
            Self::Shared(ledger) => ledger.last_used(account_id).await,
        }
    }

    /// The full record of a call.
    pub(crate) async fn call(&self, id: CallId) -> Result<Option<Call>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.call(id).await,
            Self::Shared(ledger) => ledger.call(id).await,
        }
    }

    /// One page of the account's entries, newest first; `before` is the sequence number of the previous page's last
    /// entry.
    pub(crate) async fn entries_page(
        &self,
        account_id: &str,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Entry>, LedgerError> {
        if has_nul(&[account_id]) {
            return Ok(Vec::new());
        }
        let (before, limit) = (before.unwrap_or(i64::MAX), limit.min(MAX_ROWS));
        match self {
            Self::Embedded(ledger) => ledger.entries_page(account_id, before, limit).await,
            Self::Shared(ledger) => ledger.entries_page(account_id, before, limit).await,
        }
    }

    /// What is left of each grant that is neither used up nor expired, in the order of use.
    pub(crate) async fn grants_left(
        &self,
        account_id: &str,
    ) -> Result<Vec<GrantLeft>, LedgerError> {
        match self {
            Self::Embedded(ledger) => Ok(ledger.grants_left(account_id)),
            Self::Shared(ledger) => ledger.grants_left(account_id).await,
        }
    }

    /// Accounts whose ID begins with this text, or whose email or name contains it, newest first; all accounts for an
    /// empty text. `before` is the cursor: when the last account of the previous page was created, and its ID.
    pub(crate) async fn find_accounts(
        &self,
        text: &str,
        before: Option<(i64, String)>,
        limit: usize,
    ) -> Result<Vec<AccountFound>, LedgerError> {
        let last = before.as_ref().map_or("", |(_, id)| id);
        if text.len() > MAX_TEXT || has_nul(&[text, last]) {
            return Ok(Vec::new());
        }
        let limit = limit.min(MAX_ROWS);
        match self {
            Self::Embedded(ledger) => ledger.find_accounts(text, before, limit).await,
            Self::Shared(ledger) => ledger.find_accounts(text, before, limit).await,
        }
    }

    /// The accounts with this email, in any case; newest first.
    pub(crate) async fn accounts_with_email(
        &self,
        email: &str,
    ) -> Result<Vec<Account>, LedgerError> {
        // The search finds parts of emails and names as well.
        let found = self.find_accounts(email, None, MAX_ROWS).await?;
        let accounts = found.into_iter().map(|found| found.account);
        let exact = accounts.filter(|account| account.email.eq_ignore_ascii_case(email));
        Ok(exact.collect())
    }

    /// The accounts with these IDs, in no particular order; unknown IDs are left out.
    pub(crate) async fn accounts_with_ids(
        &self,
        ids: impl IntoIterator<Item = &str>,
    ) -> Result<Vec<Account>, LedgerError> {
        let mut ids: Vec<_> = ids.into_iter().filter(|id| !has_nul(&[*id])).collect();
        ids.sort_unstable();
        ids.dedup();
        match self {
            Self::Embedded(ledger) => Ok(ledger.accounts_with_ids(&ids)),
            Self::Shared(ledger) => ledger.accounts_with_ids(&ids).await,
        }
    }

    /// Creates the account with this ID unless it exists, so that a repeated sign-up creates one account.
    pub(crate) async fn ensure_account(
        &self,
        id: &str,
        new: NewAccount,
    ) -> Result<Account, LedgerError> {
        let account = new.into_account_with_id(id.to_owned(), self.clock().now())?;
        match self {
            Self::Embedded(ledger) => ledger.ensure_account(account).await,
            Self::Shared(ledger) => ledger.ensure_account(account).await,
        }
    }
}

/// Whether a name has a NUL byte: no stored name has one, and PostgreSQL rejects it as a parameter.
pub(super) fn has_nul(names: &[&str]) -> bool {
    names.iter().any(|name| name.contains('\0'))
}

impl EntryKind {
    const ALL: [Self; 5] = [
        Self::Grant,
        Self::Charge,
        Self::Expiry,
        Self::Reversal,
        Self::Opening,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::Charge => "charge",
            Self::Expiry => "expiry",
            Self::Reversal => "reversal",
            Self::Opening => "opening",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Formats the reference of an entry: calls are stored by number and shown as `call_…`.
    pub(super) fn shown(self, reference: String) -> String {
        match (self, reference.parse()) {
            (Self::Charge | Self::Reversal, Ok(number)) => CallId(number).to_string(),
            _ => reference,
        }
    }
}
