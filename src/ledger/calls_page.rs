//! Pages of calls, newest first, with filters.
//!
//! A page reads little, however many calls there are. Account, time and failed outcomes have indexes. For the other
//! filters, the daily sums tell within which times the calls of a key, model or project lie; and of the calls within
//! these times a page looks at [`MAX_SEARCHED`] at most, then tells how far it came.

use super::{
    Call, CallId, Ledger, LedgerError, Outcome, SeenCalls,
    conditions::{Conditions, Sql, Value},
    pages::{MAX_ROWS, has_nul},
};

/// The most calls that one page looks at for filters without an index. Few in the tests of this package, whose lists go on
/// where a search has ended.
const MAX_SEARCHED: usize = if cfg!(test) { 16 } else { 100_000 };

/// Filter and cursor of a page of calls, newest first; without an account, the calls of all accounts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallsPage<'a> {
    pub account_id: Option<&'a str>,
    pub key_id: Option<&'a str>,
    pub model: Option<&'a str>,
    /// `default` for the default project.
    pub project_id: Option<&'a str>,
    /// The person who made the key.
    pub member_id: Option<&'a str>,
    /// The session of a coding agent, as it named it.
    pub session: Option<&'a str>,
    /// The provider's name in the configuration.
    pub upstream: Option<&'a str>,
    pub outcome: Option<Outcome>,
    /// Only calls that failed, see [`Outcome::is_error`].
    pub errors_only: bool,
    /// When the calls ended: from here on, and before there.
    pub from_ms: Option<i64>,
    pub to_ms: Option<i64>,
    /// Only calls that this member sees.
    pub seen: Option<&'a SeenCalls>,
    /// Cursor: when the last call of the previous page ended, and its ID.
    pub before: Option<(i64, CallId)>,
    pub limit: usize,
}

/// A page of calls.
#[derive(Debug, Default)]
pub(crate) struct CallsFound {
    /// Newest first.
    pub calls: Vec<Call>,
    /// The page looked at [`MAX_SEARCHED`] calls, back to this time, and is not full: there may be older ones.
    pub searched_to_ms: Option<i64>,
}

impl CallsFound {
    pub(super) fn new(calls: Vec<Call>, limit: usize, floor_ms: Option<i64>) -> Self {
        Self {
            searched_to_ms: floor_ms.filter(|_| calls.len() < limit),
            calls,
        }
    }
}

impl Ledger {
    /// One page of calls, without the decisions of hybrids, which are long: see [`Self::call`].
    pub(crate) async fn calls_page(&self, page: &CallsPage<'_>) -> Result<CallsFound, LedgerError> {
        let mut page = CallsPage {
            limit: page.limit.min(MAX_ROWS),
            ..*page
        };
        if page
            .names()
            .into_iter()
            .flatten()
            .any(|name| has_nul(&[name]))
        {
            return Ok(CallsFound::default());
        }
        // The calls of a key are found through its account.
        let owner = match (page.account_id, page.key_id) {
            (None, Some(key_id)) => match self.key(key_id).await {
                Ok(key) => Some(key.account_id),
                Err(LedgerError::NotFound { .. }) => return Ok(CallsFound::default()),
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
}

impl<'a> CallsPage<'a> {
    fn names(&self) -> [Option<&'a str>; 7] {
        [
            self.account_id,
            self.key_id,
            self.model,
            self.project_id,
            self.member_id,
            self.session,
            self.upstream,
        ]
    }

    /// Narrows the times to those between which the sums lie, both included.
    pub(super) fn within(self, first_ms: i64, last_ms: i64) -> Self {
        let end = last_ms.saturating_add(1);
        Self {
            from_ms: Some(self.from_ms.map_or(first_ms, |from| from.max(first_ms))),
            to_ms: Some(self.to_ms.map_or(end, |to| to.min(end))),
            ..self
        }
    }

    /// The calls that a page would look at, if it has filters without an index. Those of failed calls read an index with
    /// few entries.
    fn searched(&self) -> Option<Self> {
        let is_named = self.names().into_iter().skip(1).any(|name| name.is_some());
        let is_searched =
            is_named || self.seen.is_some() || self.outcome == Some(Outcome::Answered);
        let is_rare = self.errors_only || self.outcome.is_some_and(|one| one != Outcome::Answered);
        (is_searched && !is_rare).then_some(Self {
            account_id: self.account_id,
            from_ms: self.from_ms,
            to_ms: self.to_ms,
            before: self.before,
            ..Self::default()
        })
    }

    /// A query for the end of the last call that this page may look at; `None` if it looks at few calls.
    pub(super) fn floor_query(&self, sql: Sql) -> Option<CallsQuery> {
        let wanted = Conditions::of_calls(sql, &self.searched()?);
        let (conditions, order) = (&wanted.text, wanted.newest_first("ended_at_ms"));
        // Without the ID, which the index does not have.
        let order = order.trim_end_matches(", id DESC");
        let text = format!(
            "SELECT ended_at_ms FROM calls {conditions} {order} LIMIT 1 OFFSET {MAX_SEARCHED}"
        );
        let values = wanted.values;
        Some(CallsQuery { text, values })
    }

    /// Looks at no calls that ended before.
    pub(super) fn down_to(self, floor_ms: Option<i64>) -> Self {
        let from_ms = self.from_ms.max(floor_ms);
        Self { from_ms, ..self }
    }

    /// The query for the page's calls.
    pub(super) fn query(&self, sql: Sql, columns: &str) -> CallsQuery {
        if !self.errors_only || self.outcome.is_some() {
            let wanted = Conditions::of_calls(sql, self);
            return CallsQuery {
                text: self.select(sql, columns, &wanted),
                values: wanted.values,
            };
        }
        // The index has the calls of each outcome in order of time. Their latest ones are merged.
        let mut values = Vec::new();
        let each = Outcome::errors().map(|outcome| {
            let outcome = Some(outcome);
            let page = Self { outcome, ..*self };
            let wanted = Conditions::of_calls(sql, &page);
            let select = page.select(sql, columns, &wanted);
            // Outcomes are literals, so that the parameters of all are the same.
            values = wanted.values;
            format!(
                "SELECT * FROM ({select}) AS {}",
                outcome.map_or("", Outcome::as_str)
            )
        });
        let each: Vec<_> = each.collect();
        let text = format!(
            "SELECT * FROM ({}) AS failed ORDER BY ended_at_ms DESC, id DESC LIMIT {}",
            each.join(" UNION ALL "),
            self.limit
        );
        CallsQuery { text, values }
    }

    fn select(&self, sql: Sql, columns: &str, wanted: &Conditions) -> String {
        let (conditions, order) = (&wanted.text, wanted.newest_first("ended_at_ms"));
        let limit = self.limit;
        let calls = self.source(sql);
        format!("SELECT {columns} FROM {calls} {conditions} {order} LIMIT {limit}")
    }

    /// The table, for SQLite with the index of an account's failed calls: with bounds of time it would prefer the one of all
    /// accounts.
    fn source(&self, sql: Sql) -> &'static str {
        let is_rare = self.outcome.is_some_and(|one| one != Outcome::Answered);
        if sql == Sql::Lite && self.account_id.is_some() && is_rare {
            "calls INDEXED BY calls_not_answered_by_account"
        } else {
            "calls"
        }
    }
}

/// A query with its parameters.
#[derive(Debug)]
pub(super) struct CallsQuery {
    pub text: String,
    pub values: Vec<Value>,
}
