//! Monthly statements: an opening balance, a line for each day and model and for each other entry, and a closing balance.
//!
//! The figures come from the ledger. The statement of a month that is over is stored when it is first needed, together with
//! those of all months before it, and never changes. What is posted later for its days, e.g. from a spool of a gateway that
//! was down, is a line of its own on the next statement.

use serde::{Deserialize, Serialize};

use super::{Gateway, actions::ActionError};
use crate::{
    backoffice::{BackofficeError, StoredStatement},
    base::{money::NanoUsd, month::Month, timestamp},
    ledger::{Account, AccountDays, DayRange, Entry, EntryKind, Grant},
};

/// How long after its end a month counts as over: charges take seconds.
const GRACE_MS: i64 = 3_600_000;
/// The most months that are listed or issued at once: twenty years.
const MAX_MONTHS: usize = 240;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Statement {
    /// E.g. `2026-10`.
    pub month: String,
    /// Amounts are in nano-dollars.
    pub opening: i64,
    pub closing: i64,
    pub lines: Vec<Line>,
    /// When it was issued, in seconds; `None` while the month is not over.
    pub issued_at: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The requests of a day with one model.
    Charges {
        day: String,
        model: String,
        requests: u64,
        tokens: u64,
        amount: i64,
    },
    /// A grant, an expiry or a refund.
    Entry {
        at: i64,
        text: String,
        amount: i64,
        #[serde(default)]
        group: Option<Group>,
    },
    /// What was posted late for earlier months, or does not fit on the page.
    Sum {
        text: String,
        amount: i64,
        #[serde(default)]
        group: Option<Group>,
    },
}

/// The row of the summary in which a line is. Statements of earlier versions have none in their lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Group {
    Added,
    Requests,
    Refunds,
    Expired,
    Late,
    Other,
}

impl Group {
    const ALL: [(Self, &str); 6] = [
        (Self::Added, "Credit added"),
        (Self::Requests, "Requests"),
        (Self::Refunds, "Refunds of requests"),
        (Self::Expired, "Expired"),
        (Self::Late, "Posted late, for earlier months"),
        (Self::Other, "Other"),
    ];

    fn of(kind: EntryKind) -> Self {
        match kind {
            EntryKind::Grant => Self::Added,
            EntryKind::Charge => Self::Requests,
            EntryKind::Reversal => Self::Refunds,
            EntryKind::Expiry => Self::Expired,
            EntryKind::Opening => Self::Other,
        }
    }
}

impl Line {
    pub(crate) fn amount(&self) -> i64 {
        match self {
            Self::Charges { amount, .. }
            | Self::Entry { amount, .. }
            | Self::Sum { amount, .. } => *amount,
        }
    }

    fn group(&self) -> Group {
        match self {
            Self::Charges { .. } => Group::Requests,
            Self::Entry { group, .. } | Self::Sum { group, .. } => match group {
                Some(group) => *group,
                None if self.amount() > 0 => Group::Added,
                None => Group::Other,
            },
        }
    }
}

impl Statement {
    /// E.g. `S-2026-10-7K2M9Q4X`.
    pub(crate) fn number(&self, account_id: &str) -> String {
        let start = account_id.len().saturating_sub(8);
        let suffix = account_id.get(start..).unwrap_or(account_id);
        format!("S-{}-{}", self.month, suffix.to_uppercase())
    }
}

/// The months with a statement, latest first; the first is not over. `None` is a month before the account or one whose
/// entries were pruned before its statement was issued.
pub(crate) async fn months(
    gateway: &Gateway,
    account: &Account,
    now_ms: i64,
) -> Result<Vec<Month>, ActionError> {
    let stored = gateway.backoffice.statement_months(&account.id, MAX_MONTHS);
    let mut months: Vec<_> = stored
        .await?
        .iter()
        .filter_map(|text| Month::parse(text))
        .collect();
    let mut month = first_month(gateway, account, now_ms).await?;
    while month <= Month::of_ms(now_ms) && months.len() < 2 * MAX_MONTHS {
        months.push(month);
        month = month.next();
    }
    months.sort_unstable();
    months.dedup();
    months.reverse();
    months.truncate(MAX_MONTHS);
    Ok(months)
}

/// The statement of a month; `None` if there is none.
pub(crate) async fn statement(
    gateway: &Gateway,
    account: &Account,
    month: Month,
    now_ms: i64,
) -> Result<Option<Statement>, ActionError> {
    let text = month.to_string();
    if let Some(stored) = gateway.backoffice.statement(&account.id, &text).await? {
        return Ok(Some(read(&stored)?));
    }
    let first = first_month(gateway, account, now_ms).await?;
    if month < first || month > Month::of_ms(now_ms) {
        return Ok(None);
    }
    let grants = gateway.ledger.grants(&account.id).await?;
    // Those of earlier months are issued first, so that each begins where the one before has ended.
    let mut earlier = month.earlier(1);
    let mut missing = vec![month];
    let mut before = None;
    while missing.len() < MAX_MONTHS {
        let text = earlier.to_string();
        let stored = gateway.backoffice.statement(&account.id, &text).await?;
        // The one before the first month, whose entries are pruned, counts too.
        if let Some(stored) = stored {
            before = Some(read(&stored)?);
            break;
        }
        if earlier < first {
            break;
        }
        missing.push(earlier);
        earlier = earlier.earlier(1);
    }
    for month in missing.into_iter().rev() {
        let made = make(gateway, account, month, before.as_ref(), &grants).await?;
        let is_over = now_ms >= month.next().first_ms() + GRACE_MS;
        before = Some(if is_over {
            issue(gateway, account, made, now_ms / 1_000).await?
        } else {
            made
        });
    }
    Ok(before)
}

/// The first month of an account whose entries are all there.
async fn first_month(
    gateway: &Gateway,
    account: &Account,
    now_ms: i64,
) -> Result<Month, ActionError> {
    let edges = gateway.ledger.history_edges(&account.id, now_ms / 1_000);
    let opening = edges.await?.opening;
    let created = Month::of_ms(account.created_at.saturating_mul(1_000));
    let opening = opening.as_deref().and_then(Month::of_day);
    Ok(opening.map_or(created, |opening| opening.max(created)))
}

async fn issue(
    gateway: &Gateway,
    account: &Account,
    mut made: Statement,
    now: i64,
) -> Result<Statement, ActionError> {
    made.issued_at = Some(now);
    let new = StoredStatement {
        month: made.month.clone(),
        content: serde_json::to_string(&made).expect("a statement is plain JSON"),
        issued_at: now,
    };
    let stored = gateway
        .backoffice
        .issue_statement(&account.id, &new)
        .await?;
    read(&stored)
}

fn read(stored: &StoredStatement) -> Result<Statement, ActionError> {
    let unreadable = |_| BackofficeError::Unavailable("a stored statement cannot be read".into());
    Ok(serde_json::from_str(&stored.content).map_err(unreadable)?)
}

async fn make(
    gateway: &Gateway,
    account: &Account,
    month: Month,
    before: Option<&Statement>,
    grants: &[Grant],
) -> Result<Statement, ActionError> {
    let range = DayRange::of(
        month.first_ms() / 1_000,
        month.next().first_ms() / 1_000 - 1,
    );
    let days = gateway.ledger.account_days(&account.id, &range).await?;
    let computed = days.opening.nanos();
    let opening = before.map_or(computed, |before| before.closing);
    let mut lines = Vec::new();
    if computed != opening {
        lines.push(Line::Sum {
            text: "Posted late, for earlier months".into(),
            amount: computed.saturating_sub(opening),
            group: Some(Group::Late),
        });
    }
    lines.extend(day_lines(&days, grants));
    Ok(Statement {
        month: month.to_string(),
        opening,
        closing: days.closing.nanos(),
        lines,
        issued_at: None,
    })
}

/// The lines of a month by day: other entries first, then the requests.
fn day_lines(days: &AccountDays, grants: &[Grant]) -> Vec<Line> {
    let (others, sum) = days.earlier_entries;
    let mut lines = Vec::new();
    if others > 0 {
        let text = format!("{others} other entries");
        let line = Line::Sum {
            text,
            amount: sum.nanos(),
            group: Some(Group::Other),
        };
        lines.push((String::new(), line));
    }
    lines.extend(days.entries.iter().map(|entry| {
        let line = Line::Entry {
            at: entry.at,
            text: description(entry, grants),
            amount: entry.delta.nanos(),
            group: Some(Group::of(entry.kind)),
        };
        (timestamp::day(entry.at), line)
    }));
    lines.extend(days.charges.iter().map(|charges| {
        let line = Line::Charges {
            day: charges.day.clone(),
            model: charges.model.clone(),
            requests: charges.requests,
            tokens: charges.prompt + charges.completion,
            amount: charges.cost.nanos().saturating_neg(),
        };
        (charges.day.clone(), line)
    }));
    // Stable, so that the order within a day stays.
    lines.sort_by(|(one, _), (other, _)| one.cmp(other));
    lines.into_iter().map(|(_, line)| line).collect()
}

/// What an entry other than a day's charges is, in words.
pub(crate) fn description(entry: &Entry, grants: &[Grant]) -> String {
    let mut grants = grants.iter();
    let grant = grants.find(|grant| grant.id == entry.reference);
    let reason = grant.and_then(|grant| grant.reason.as_deref());
    let reason = reason.filter(|reason| !reason.is_empty());
    let with_reason = |what: &str| match reason {
        Some(reason) => format!("{what}: {reason}"),
        None => what.to_owned(),
    };
    match entry.kind {
        EntryKind::Grant => with_reason("Credit added"),
        EntryKind::Expiry => with_reason("Credit expired"),
        EntryKind::Charge => format!("Charge of request {}", entry.reference),
        EntryKind::Reversal => format!("Refunded charge of request {}", entry.reference),
        EntryKind::Opening => format!("Balance brought forward from before {}", entry.reference),
    }
}

/// Sums of a statement's lines by group; all together they are what lies between opening and closing balance. The first
/// two are always there.
pub(crate) fn totals(statement: &Statement) -> Vec<(&'static str, NanoUsd)> {
    let sum = |group: Group| {
        let lines = statement.lines.iter();
        let of_group = lines.filter(|line| line.group() == group);
        of_group.map(Line::amount).fold(0, i64::saturating_add)
    };
    let rows = Group::ALL.map(|(group, name)| (group, name, sum(group)));
    let is_shown = |(group, _, sum): &(Group, _, i64)| {
        *sum != 0 || matches!(group, Group::Added | Group::Requests)
    };
    rows.into_iter()
        .filter(is_shown)
        .map(|(_, name, sum)| (name, NanoUsd::new(sum)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: EntryKind, amount: i64) -> Line {
        Line::Entry {
            at: 0,
            text: String::new(),
            amount,
            group: Some(Group::of(kind)),
        }
    }

    #[test]
    fn refunds_and_late_postings_have_rows_of_their_own() {
        let charges = Line::Charges {
            day: "2026-10-01".into(),
            model: "svc-standard".into(),
            requests: 1,
            tokens: 1,
            amount: -100,
        };
        let late = Line::Sum {
            text: String::new(),
            amount: 3,
            group: Some(Group::Late),
        };
        let mut statement = Statement {
            lines: vec![late, entry(EntryKind::Grant, 500), charges],
            ..Statement::default()
        };
        statement.lines.extend([
            entry(EntryKind::Reversal, 40),
            entry(EntryKind::Expiry, -7),
            entry(EntryKind::Grant, 20),
        ]);
        let shown = totals(&statement);
        let shown: Vec<_> = shown
            .iter()
            .map(|(name, sum)| (*name, sum.nanos()))
            .collect();
        let expected = [
            ("Credit added", 520),
            ("Requests", -100),
            ("Refunds of requests", 40),
            ("Expired", -7),
            ("Posted late, for earlier months", 3),
        ];
        assert_eq!(shown, expected);
        let empty = totals(&Statement::default());
        let zero = NanoUsd::default();
        assert_eq!(empty, [("Credit added", zero), ("Requests", zero)]);
    }

    #[test]
    fn lines_of_earlier_versions_are_in_the_summary() {
        let stored = r#"[{"entry":{"at":1,"text":"Credit added","amount":5}},{"sum":{"text":"3 other entries","amount":-2}}]"#;
        let statement = Statement {
            lines: serde_json::from_str(stored).unwrap(),
            ..Statement::default()
        };
        let sums: Vec<_> = totals(&statement)
            .iter()
            .map(|(_, sum)| sum.nanos())
            .collect();
        assert_eq!(sums, [5, 0, -2]);
    }
}
