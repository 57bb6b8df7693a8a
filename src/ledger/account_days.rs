//! An account's ledger by day: one sum of charges for each day and model, and every other entry, between two exact
//! balances.
//!
//! The balance at the end of the days is the present one less what came after, read in one statement with the sums. So
//! the figures add up to the last nano-dollar, whatever is charged meanwhile, and need no entries that were pruned.

use super::{Entry, EntryKind, Ledger, LedgerError, pages::has_nul};
use crate::base::{money::NanoUsd, timestamp};

/// The most entries that are read; the others are one sum.
pub(crate) const MAX_ENTRIES: i64 = 400;
const DAY_SECONDS: i64 = 86_400;

/// Days of an account, both included.
#[derive(Clone, Debug)]
pub(crate) struct DayRange {
    /// `2026-11-01`, in UTC.
    from_day: String,
    to_day: String,
    from: i64,
    /// The first second after them.
    until: i64,
}

impl DayRange {
    /// The days from that of one time (in seconds) to that of another.
    pub(crate) fn of(from: i64, to: i64) -> Self {
        let midnight = |at: i64| at.div_euclid(DAY_SECONDS) * DAY_SECONDS;
        let (from, until) = (midnight(from), midnight(to) + DAY_SECONDS);
        Self {
            from_day: timestamp::day(from),
            to_day: timestamp::day(until - 1),
            from,
            until,
        }
    }

    pub(crate) fn first_day(&self) -> &str {
        &self.from_day
    }

    pub(crate) fn to_day(&self) -> &str {
        &self.to_day
    }

    pub(super) fn seconds(&self) -> (i64, i64) {
        (self.from, self.until)
    }
}

/// The charges of a day for one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DayCharges {
    pub day: String,
    pub model: String,
    pub requests: u64,
    pub prompt: u64,
    pub completion: u64,
    pub cost: NanoUsd,
}

/// What changed an account's balance in a range of days.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccountDays {
    /// The balance before the first day.
    pub opening: NanoUsd,
    /// The balance after the last day.
    pub closing: NanoUsd,
    /// By day, then model; ascending.
    pub charges: Vec<DayCharges>,
    /// Entries other than charges, oldest first; of very many the latest.
    pub entries: Vec<Entry>,
    /// How many entries came before those, and their sum.
    pub earlier_entries: (u64, NanoUsd),
}

/// Where an account's history has something to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HistoryEdges {
    /// The latest day before the given one with a charge or an entry.
    pub latest: Option<String>,
    /// The first day that is not pruned; `None` if nothing is.
    pub opening: Option<String>,
}

/// One row of [`DAYS`].
pub(super) enum Read {
    Balance(NanoUsd),
    /// Sum of what came after the days.
    After(NanoUsd),
    Charges(DayCharges),
    /// Sum and number of all entries within the days.
    Entries(NanoUsd, u64),
    Entry(Entry),
}

/// All figures of a range, in one statement, so that they are of one moment. In both dialects; the placeholders are the
/// account, the first and the last day, the first second, the first second after, and the most entries.
pub(super) const DAYS: &str = "
    SELECT 'now' AS kind, '' AS name, '' AS model, CAST(0 AS BIGINT) AS seq, CAST(0 AS BIGINT) AS at,
        CAST(balance_nano_usd AS BIGINT) AS amount, CAST(0 AS BIGINT) AS count, CAST(0 AS BIGINT) AS prompt,
        CAST(0 AS BIGINT) AS completion
    FROM balances WHERE account_id = $1
    UNION ALL
    SELECT 'day', day, model, 0, 0, CAST(sum(cost_nano_usd) AS BIGINT), CAST(sum(charged_calls) AS BIGINT),
        CAST(sum(prompt_tokens) AS BIGINT), CAST(sum(completion_tokens) AS BIGINT)
    FROM usage_days WHERE account_id = $1 AND day >= $2 AND day <= $3
    GROUP BY day, model HAVING sum(charged_calls) > 0 OR sum(cost_nano_usd) <> 0
    UNION ALL
    SELECT 'after', '', '', 0, 0, CAST(-coalesce(sum(cost_nano_usd), 0) AS BIGINT), 0, 0, 0
    FROM usage_days WHERE account_id = $1 AND day > $3
    UNION ALL
    SELECT 'entries', '', '', 0, 0, CAST(coalesce(sum(delta_nano_usd), 0) AS BIGINT), count(*), 0, 0
    FROM ledger_entries WHERE account_id = $1 AND kind <> 'opening' AND at >= $4 AND at < $5
    UNION ALL
    SELECT 'after', '', '', 0, 0, CAST(coalesce(sum(delta_nano_usd), 0) AS BIGINT), 0, 0, 0
    FROM ledger_entries WHERE account_id = $1 AND kind <> 'opening' AND at >= $5
    UNION ALL
    SELECT * FROM (
        SELECT kind, ref, '', seq, at, delta_nano_usd, balance_after_nano_usd, 0, 0
        FROM ledger_entries WHERE account_id = $1 AND kind <> 'opening' AND at >= $4 AND at < $5
        ORDER BY seq DESC LIMIT $6) AS latest";

/// [`HistoryEdges`], with the time of an entry instead of its day. The placeholders are the account, a day, and its first
/// second.
pub(super) const EDGES: &str = "
    SELECT (SELECT max(day) FROM usage_days WHERE account_id = $1 AND day < $2),
        (SELECT max(at) FROM ledger_entries WHERE account_id = $1 AND kind <> 'opening' AND at < $3),
        (SELECT ref FROM ledger_entries WHERE account_id = $1 AND kind = 'opening')";

impl Read {
    /// A row from its columns; `None` if it is of an unknown kind.
    pub(super) fn of(
        kind: &str,
        (name, model): (String, String),
        (seq, at): (i64, i64),
        [amount, count, prompt, completion]: [i64; 4],
    ) -> Option<Self> {
        let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
        let sum = NanoUsd::new(amount);
        Some(match kind {
            "now" => Self::Balance(sum),
            "after" => Self::After(sum),
            "entries" => Self::Entries(sum, unsigned(count)),
            "day" => Self::Charges(DayCharges {
                day: name,
                model,
                requests: unsigned(count),
                prompt: unsigned(prompt),
                completion: unsigned(completion),
                cost: sum,
            }),
            kind => {
                let kind = EntryKind::parse(kind)?;
                Self::Entry(Entry {
                    seq,
                    kind,
                    reference: kind.shown(name),
                    delta: sum,
                    balance_after: NanoUsd::new(count),
                    at,
                })
            }
        })
    }
}

impl AccountDays {
    pub(super) fn of(rows: impl IntoIterator<Item = Read>) -> Self {
        let mut days = Self::default();
        let (mut closing, mut change) = (0_i64, 0_i64);
        let (mut number, mut sum) = (0, 0_i64);
        for row in rows {
            match row {
                Read::Balance(now) => closing = closing.saturating_add(now.nanos()),
                Read::After(after) => closing = closing.saturating_sub(after.nanos()),
                Read::Charges(charges) => {
                    change = change.saturating_sub(charges.cost.nanos());
                    days.charges.push(charges);
                }
                Read::Entries(all, count) => {
                    (sum, number) = (sum.saturating_add(all.nanos()), count);
                    change = change.saturating_add(all.nanos());
                }
                Read::Entry(entry) => days.entries.push(entry),
            }
        }
        for entry in &days.entries {
            sum = sum.saturating_sub(entry.delta.nanos());
        }
        let left_out = number.saturating_sub(days.entries.len() as u64);
        days.earlier_entries = (left_out, NanoUsd::new(sum));
        days.entries.sort_unstable_by_key(|entry| entry.seq);
        days.charges
            .sort_unstable_by(|a, b| (&a.day, &a.model).cmp(&(&b.day, &b.model)));
        days.closing = NanoUsd::new(closing);
        days.opening = NanoUsd::new(closing.saturating_sub(change));
        days
    }
}

impl HistoryEdges {
    pub(super) fn of(
        charged: Option<String>,
        entered: Option<i64>,
        opening: Option<String>,
    ) -> Self {
        let entered = entered.map(timestamp::day);
        Self {
            latest: charged.max(entered),
            opening,
        }
    }
}

impl Ledger {
    /// What changed the account's balance on these days; nothing for an unknown account.
    pub(crate) async fn account_days(
        &self,
        account_id: &str,
        range: &DayRange,
    ) -> Result<AccountDays, LedgerError> {
        if has_nul(&[account_id]) {
            return Ok(AccountDays::default());
        }
        match self {
            Self::Embedded(ledger) => ledger.account_days(account_id, range).await,
            Self::Shared(ledger) => ledger.account_days(account_id, range).await,
        }
    }

    /// The latest day before that of a time (in seconds) with a change of the balance, and where the history begins.
    pub(crate) async fn history_edges(
        &self,
        account_id: &str,
        before: i64,
    ) -> Result<HistoryEdges, LedgerError> {
        if has_nul(&[account_id]) {
            return Ok(HistoryEdges::default());
        }
        let before = before.div_euclid(DAY_SECONDS) * DAY_SECONDS;
        match self {
            Self::Embedded(ledger) => ledger.history_edges(account_id, before).await,
            Self::Shared(ledger) => ledger.history_edges(account_id, before).await,
        }
    }
}
