//! The margin page: charges compared with the providers' prices of the calls, by model, account and day.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    access::SignedInOperator,
    account_names::AccountNames,
    frame::{self, Place},
};
use crate::{
    base::{money::NanoUsd, timestamp},
    gateway::Gateway,
    ledger::{AnalyticsFilter, AnalyticsRow},
    portal::{
        days,
        error::PortalError,
        formatting::{count, money},
        layout::Page,
        query::{ReadQuery, non_empty},
        table::scrolled,
    },
};

const HERE: &str = "/portal/console/margin";
/// The periods on offer, in days; the first is the default.
const PERIODS: [u16; 3] = [7, 30, 90];
const DAY_SECONDS: i64 = 24 * 60 * 60;
/// Most rows of a table; accounts can be many.
const MAX_ROWS: usize = 200;

#[derive(Deserialize)]
pub(crate) struct MarginQuery {
    days: Option<String>,
}

impl MarginQuery {
    fn days(&self) -> Result<u16, PortalError> {
        let Some(text) = non_empty(self.days.as_ref()) else {
            return Ok(PERIODS[0]);
        };
        let period = PERIODS.into_iter().find(|days| days.to_string() == text);
        period.ok_or_else(|| PortalError::Invalid("Margin is shown for 7, 30 or 90 days.".into()))
    }
}

/// Sums over calls.
#[derive(Clone, Copy, Default)]
struct Sums {
    calls: u64,
    charged: i64,
    provider_cost: i64,
    margin: i64,
    below_cost: u64,
}

impl Sums {
    fn add(&mut self, row: &AnalyticsRow) {
        self.calls += row.calls;
        self.charged = self.charged.saturating_add(row.cost.nanos());
        self.provider_cost = self.provider_cost.saturating_add(row.provider_cost.nanos());
        self.margin = self.margin.saturating_add(row.margin.nanos());
        self.below_cost += row.below_cost;
    }

    /// The amount, or "unknown" if no call has a known provider cost. A deployment that costs nothing still has
    /// a margin, so only a zero in both means unknown.
    fn known(&self, nanos: i64) -> String {
        if (self.provider_cost, self.margin) == (0, 0) {
            return "unknown".into();
        }
        dollars(nanos)
    }

    fn of<'a>(rows: impl IntoIterator<Item = &'a AnalyticsRow>) -> Self {
        let mut sums = Self::default();
        for row in rows {
            sums.add(row);
        }
        sums
    }
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    ReadQuery(query): ReadQuery<MarginQuery>,
) -> Result<Page, PortalError> {
    let days = query.days()?;
    let now = timestamp::now();
    // The period starts at midnight UTC of its first day.
    let midnight = now - now.rem_euclid(DAY_SECONDS);
    let from = midnight - i64::from(days - 1) * DAY_SECONDS;
    let filter = AnalyticsFilter {
        from_ms: from.saturating_mul(1_000),
        to_ms: i64::MAX,
        ..AnalyticsFilter::default()
    };
    let rows = gateway.ledger.analytics(filter).await?;
    let by_account = Groups::of(&rows, |row| &row.account_id);
    let names = AccountNames::read(&gateway, by_account.names()).await?;
    let content = html! {
        h1 { "Margin" }
        p.muted {
            "Charges compared with the cost at providers, for deployments whose cost is configured ("
            code { "cost" } "). Margin covers only those calls."
        }
        (choice(days))
        @if rows.is_empty() {
            p.empty { "No calls in this period." }
        } @else {
            (totals(&Sums::of(&rows)))
            (table("By model", "Model", &Groups::of(&rows, |row| &row.model), |model| html! { code { (model) } }))
            (table("By account", "Account", &by_account, |id| names.link(id)))
            (table("By day", "Day (UTC)", &Groups::of(&rows, |row| &row.day), |day| html! { (days::long(day)) }))
        }
    };
    Ok(frame::page(&me, Place::Margin, "Margin", &content))
}

fn choice(chosen: u16) -> Markup {
    html! {
        nav.choices aria-label="Period" {
            ul {
                @for days in PERIODS {
                    li {
                        a href={ (HERE) "?days=" (days) } aria-current=[(days == chosen).then_some("true")] {
                            (days) " days"
                        }
                    }
                }
            }
        }
    }
}

fn totals(sums: &Sums) -> Markup {
    html! {
        dl {
            dt { "Charged" } dd { (dollars(sums.charged)) }
            dt { "Provider cost" } dd { (sums.known(sums.provider_cost)) }
            dt { "Margin" } dd { (sums.known(sums.margin)) }
            dt { "Calls charged below their cost" } dd { (count(sums.below_cost)) }
        }
    }
}

/// Sums by one key, smallest margin first, because losses are what operators look for.
struct Groups<'a> {
    shown: Vec<(&'a str, Sums)>,
    /// How many more there are.
    more: usize,
}

impl<'a> Groups<'a> {
    fn of(rows: &'a [AnalyticsRow], key: fn(&AnalyticsRow) -> &String) -> Self {
        let mut groups: BTreeMap<&str, Sums> = BTreeMap::new();
        for row in rows {
            groups.entry(key(row)).or_default().add(row);
        }
        let mut shown: Vec<_> = groups.into_iter().collect();
        shown.sort_by_key(|(_, sums)| sums.margin);
        let more = shown.len().saturating_sub(MAX_ROWS);
        shown.truncate(MAX_ROWS);
        Self { shown, more }
    }

    fn names(&self) -> impl Iterator<Item = &'a str> {
        self.shown.iter().map(|(name, _)| *name)
    }
}

fn table(title: &str, name: &str, groups: &Groups<'_>, shown: impl Fn(&str) -> Markup) -> Markup {
    let table = html! {
        table {
            caption { "Smallest margin first" }
            thead { tr {
                th scope="col" { (name) }
                th.number scope="col" { "Calls" }
                th.number scope="col" { "Charged" }
                th.number scope="col" { "Provider cost" }
                th.number scope="col" { "Margin" }
                th.number scope="col" { "Below cost" }
            } }
            tbody {
                @for (name, sums) in &groups.shown {
                    tr {
                        th scope="row" { (shown(name)) }
                        td.number { (count(sums.calls)) }
                        td.number { (dollars(sums.charged)) }
                        td.number { (sums.known(sums.provider_cost)) }
                        td.number { (sums.known(sums.margin)) }
                        td.number { (count(sums.below_cost)) }
                    }
                }
            }
        }
    };
    html! {
        section {
            h2 { (title) }
            (scrolled(title, &table))
            @if groups.more > 0 { p.muted { "and " (groups.more) " more" } }
        }
    }
}

fn dollars(nanos: i64) -> String {
    money(NanoUsd::new(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_smallest_margins_and_counts_the_others() {
        let row = |number: i64| AnalyticsRow {
            account_id: format!("acct_{number}"),
            margin: NanoUsd::new(1_000 - number),
            ..AnalyticsRow::default()
        };
        let rows: Vec<_> = (0..205).map(row).collect();
        let groups = Groups::of(&rows, |row| &row.account_id);
        assert_eq!((groups.shown.len(), groups.more), (MAX_ROWS, 5));
        assert_eq!(groups.names().next(), Some("acct_204"));
        assert!(groups.names().all(|name| name != "acct_4"));
    }
}
