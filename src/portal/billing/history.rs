//! The history of the balance: a row for each day's charges, and one for every other entry.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::{
    base::{money::NanoUsd, timestamp},
    gateway::{Gateway, statements::description},
    ledger::{AccountDays, DayRange, Entry, Grant, HistoryEdges, LedgerError},
    portal::{
        days,
        formatting::{count, moment, money},
        rights::Right,
        session::SignedIn,
        table::scrolled,
    },
};

/// How many days a page has, after the latest with an entry.
const PAGE_DAYS: i64 = 31;
const DAY_SECONDS: i64 = 86_400;

/// A page of the history.
pub(crate) struct History {
    range: DayRange,
    days: AccountDays,
    /// The first day that is not pruned, if this page begins with it.
    brought_forward: Option<String>,
    /// The last day of the page before, if there is one.
    older: Option<String>,
}

/// What happened on one day.
#[derive(Default)]
struct Day<'a> {
    requests: u64,
    tokens: u64,
    cost: i64,
    entries: Vec<&'a Entry>,
}

impl History {
    /// The page that ends with the latest entry before this day's end (in seconds).
    pub(crate) async fn before(
        gateway: &Gateway,
        account: &str,
        before: i64,
    ) -> Result<Self, LedgerError> {
        let ledger = &gateway.ledger;
        let edges = ledger.history_edges(account, before).await?;
        let last = edges.latest.as_deref().and_then(seconds);
        let last = last.unwrap_or(before - DAY_SECONDS);
        let mut from = last - (PAGE_DAYS - 1) * DAY_SECONDS;
        let opening = edges.opening.as_deref().and_then(seconds);
        let begins = opening.filter(|opening| from <= *opening);
        if let Some(opening) = begins {
            from = opening;
        }
        let range = DayRange::of(from, last.max(from));
        let days = ledger.account_days(account, &range).await?;
        let HistoryEdges { latest, .. } = match begins {
            Some(_) => HistoryEdges::default(),
            None => ledger.history_edges(account, from).await?,
        };
        Ok(Self {
            range,
            days,
            brought_forward: edges.opening.filter(|_| begins.is_some()),
            older: latest,
        })
    }

    /// The query parameter for the next older page.
    pub(crate) fn older(&self) -> Option<&str> {
        self.older.as_ref().map(|_| self.range.first_day())
    }

    fn by_day(&self) -> BTreeMap<String, Day<'_>> {
        let mut all = BTreeMap::<String, Day<'_>>::new();
        for charges in &self.days.charges {
            let day = all.entry(charges.day.clone()).or_default();
            day.requests += charges.requests;
            day.tokens += charges.prompt + charges.completion;
            day.cost = day.cost.saturating_add(charges.cost.nanos());
        }
        for entry in &self.days.entries {
            let day = all.entry(timestamp::day(entry.at)).or_default();
            day.entries.push(entry);
        }
        all
    }

    /// The section with the table.
    pub(crate) fn table(&self, me: &SignedIn, grants: &[Grant]) -> Markup {
        let mut rows = Vec::new();
        let mut balance = self.days.closing.nanos();
        for (day, changes) in self.by_day().iter().rev() {
            if changes.requests > 0 || changes.cost != 0 {
                rows.push(charges_row(me, day, changes, balance));
                balance = balance.saturating_add(changes.cost);
            }
            for entry in changes.entries.iter().rev() {
                rows.push(entry_row(entry, grants, balance));
                balance = balance.saturating_sub(entry.delta.nanos());
            }
        }
        let (others, sum) = self.days.earlier_entries;
        html! {
            @if rows.is_empty() && self.brought_forward.is_none() {
                p.empty { "No entries yet." }
            } @else {
                (scrolled("History", &html! {
                    table.history {
                        caption { "Everything that changed the balance, newest first; days in UTC" }
                        thead {
                            tr {
                                th scope="col" { "Date" }
                                th scope="col" { "Description" }
                                th.number scope="col" { "Tokens" }
                                th.number scope="col" { "Amount" }
                                th.number scope="col" { "Balance" }
                            }
                        }
                        tbody {
                            @for row in &rows { (row) }
                            @if others > 0 {
                                tr {
                                    td data-label="Date" { "Until then" }
                                    th scope="row" data-label="Description" { (count(others)) " earlier entries" }
                                    td.number data-label="Tokens" {}
                                    td.number data-label="Amount" { (signed(sum.nanos())) }
                                    td.number data-label="Balance" { (money(NanoUsd::new(balance))) }
                                }
                            }
                            @if let Some(day) = &self.brought_forward { (forward_row(day, self.days.opening)) }
                        }
                    }
                }))
            }
        }
    }
}

/// The first second of a day such as `2026-11-16`; `None` if it is no day.
pub(crate) fn seconds(day: &str) -> Option<i64> {
    timestamp::read(&format!("{day}T00:00:00Z"))
}

fn charges_row(me: &SignedIn, day: &str, changes: &Day<'_>, balance: i64) -> Markup {
    let noun = if changes.requests == 1 {
        "request"
    } else {
        "requests"
    };
    let label = format!("Charges for {} {noun}", count(changes.requests));
    html! {
        tr {
            td data-label="Date" { time datetime=(day) { (days::long(day)) } }
            th scope="row" data-label="Description" {
                @if me.may(Right::Requests) {
                    a href={ "/portal/requests?from=" (day) "&to=" (day) } { (label) }
                } @else { (label) }
            }
            td.number data-label="Tokens" { (count(changes.tokens)) }
            td.number data-label="Amount" { (signed(changes.cost.saturating_neg())) }
            td.number data-label="Balance" { (money(NanoUsd::new(balance))) }
        }
    }
}

fn entry_row(entry: &Entry, grants: &[Grant], balance: i64) -> Markup {
    html! {
        tr {
            td data-label="Date" { (moment(entry.at)) }
            th scope="row" data-label="Description" { (description(entry, grants)) }
            td.number data-label="Tokens" {}
            td.number data-label="Amount" { (signed(entry.delta.nanos())) }
            td.number data-label="Balance" { (money(NanoUsd::new(balance))) }
        }
    }
}

fn forward_row(day: &str, balance: NanoUsd) -> Markup {
    html! {
        tr {
            td data-label="Date" { time datetime=(day) { (days::long(day)) } }
            th scope="row" data-label="Description" { "Balance brought forward from before " (days::long(day)) }
            td.number data-label="Tokens" {}
            td.number data-label="Amount" {}
            td.number data-label="Balance" { (money(balance)) }
        }
    }
}

/// An amount with its sign.
pub(crate) fn signed(nanos: i64) -> String {
    let sign = if nanos > 0 { "+" } else { "" };
    format!("{sign}{}", money(NanoUsd::new(nanos)))
}
