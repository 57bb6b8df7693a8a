//! Sums of the calls of at most a day, by hour or minute, and the latencies of the latest calls.
//!
//! Both read the calls of one account through its index of times. Sums are added up by the store.

use super::{
    CallsPage, DayUse, Ledger, LedgerError, SeenCalls,
    conditions::{Conditions, Sql, Value},
    pages::has_nul,
};

/// The longest period that is summed up: a day, and a span that has begun.
const MAX_MS: i64 = 25 * 60 * 60 * 1_000;
/// Latencies are those of this many requests at most, the latest ones…
pub(crate) const MAX_TIMINGS: usize = 2_000;
/// … among this many of the account.
const MAX_SEARCHED: usize = 20_000;

/// Selects calls of an account to sum up. They count by the time of their end.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpansPage {
    pub account_id: String,
    /// Only calls that this member sees.
    pub seen: Option<SeenCalls>,
    pub from_ms: i64,
    pub to_ms: i64,
    /// The length of a span: an hour, or a minute.
    pub step_ms: i64,
}

/// How long an answered call took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    pub key_id: String,
    /// `default` for the default project.
    pub project_id: String,
    pub model: String,
    /// Until the first part of a stream, in milliseconds; `None` for other responses, which come as a whole.
    pub first_ms: Option<i64>,
    pub total_ms: i64,
}

impl Ledger {
    /// Sums of at most a day's calls by span, model, key and project, in this order. The `day` of each is the time at which
    /// its span begins: `2026-11-16T14:00:00Z`.
    pub(crate) async fn usage_spans(&self, page: SpansPage) -> Result<Vec<DayUse>, LedgerError> {
        if has_nul(&[&page.account_id]) || page.step_ms < 1 {
            return Ok(Vec::new());
        }
        let from_ms = page.from_ms.max(page.to_ms.saturating_sub(MAX_MS));
        let page = SpansPage { from_ms, ..page };
        match self {
            Self::Embedded(ledger) => ledger.usage_spans(page).await,
            Self::Shared(ledger) => ledger.usage_spans(page).await,
        }
    }

    /// How long the latest answered calls of the period took, newest first: at most [`MAX_TIMINGS`].
    pub(crate) async fn latest_timings(
        &self,
        account_id: &str,
        seen: Option<&SeenCalls>,
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<Timing>, LedgerError> {
        if has_nul(&[account_id]) {
            return Ok(Vec::new());
        }
        let page = CallsPage {
            account_id: Some(account_id),
            seen,
            from_ms: Some(from_ms),
            to_ms: Some(to_ms),
            ..CallsPage::default()
        };
        match self {
            Self::Embedded(ledger) => ledger.latest_timings(&page).await,
            Self::Shared(ledger) => ledger.latest_timings(&page).await,
        }
    }
}

/// The query of [`Ledger::usage_spans`].
pub(super) fn sums(sql: Sql, page: &SpansPage) -> (String, Vec<Value>) {
    let of = CallsPage {
        account_id: Some(&page.account_id),
        seen: page.seen.as_ref(),
        from_ms: Some(page.from_ms),
        to_ms: Some(page.to_ms),
        ..CallsPage::default()
    };
    let Conditions { text, values, .. } = Conditions::of_calls(sql, &of);
    let (step, sum) = (page.step_ms, |column: &str| match sql {
        Sql::Lite => format!("coalesce(sum({column}), 0)"),
        Sql::Postgres => format!("coalesce(sum({column}), 0)::bigint"),
    });
    let [prompt, cached, completion, reasoning, cost] = [
        "prompt_tokens",
        "cached_tokens",
        "completion_tokens",
        "reasoning_tokens",
        "cost_nano_usd",
    ]
    .map(sum);
    let query = format!(
        "SELECT ended_at_ms / {step} * {step} AS span, key_id, model, count(*), count(cost_nano_usd), {prompt}, {cached},
             {completion}, {reasoning}, {cost}, max(ended_at_ms), coalesce(project_id, 'default') AS project
         FROM calls {text} GROUP BY span, model, key_id, project ORDER BY span, model, key_id, project"
    );
    (query, values)
}

/// The query of [`Ledger::latest_timings`].
pub(super) fn timings(sql: Sql, page: &CallsPage<'_>) -> (String, Vec<Value>) {
    // Cut before the calls of a member are selected, so that a developer's page reads no more than an owner's. The outer
    // query keeps the order.
    let mut wanted = Conditions::of_calls(
        sql,
        &CallsPage {
            seen: None,
            ..*page
        },
    );
    let order = wanted.newest_first("ended_at_ms");
    let calls = wanted.text.clone();
    let seen = page.seen.map_or_else(String::new, |seen| wanted.sees(seen));
    let query = format!(
        "SELECT key_id, coalesce(project_id, 'default'), model, CASE WHEN stream THEN first_byte_at_ms - admitted_at_ms END,
             ended_at_ms - admitted_at_ms
         FROM (SELECT * FROM calls {calls} {order} LIMIT {MAX_SEARCHED}) AS latest
         WHERE outcome = 'answered' {seen} LIMIT {MAX_TIMINGS}"
    );
    (query, wanted.values)
}
