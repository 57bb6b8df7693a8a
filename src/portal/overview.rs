//! The start page: balance, spending, recent usage, latest requests, and the first steps for a new account.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::{
    chart::{Chart, Series, Unit},
    days,
    error::PortalError,
    formatting::{count, money, money_rounded},
    layout::{self, Page, Place},
    notice,
    playground::is_playground_key,
    requests::{
        self,
        filter::Filter,
        merged::{Listed, Of, Requests},
    },
    rights::Right,
    session::SignedIn,
    sight::Sight,
    snippets, starter,
};
use crate::{
    base::{money::NanoUsd, timestamp},
    gateway::Gateway,
    ledger::{Balances, DayUse, Grant, GrantLeft, Key, KeyState, SumsOf},
};

mod pace;

const SHOWN_REQUESTS: usize = 8;
/// The days of the chart.
const DAYS: u16 = 30;
/// A month may begin a day before those.
const READ_DAYS: u16 = 31;

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    let (ledger, account) = (&gateway.ledger, me.account.id.as_str());
    let days = days::last(READ_DAYS, timestamp::now());
    let (from, today) = (&days[0], &days[days.len() - 1]);
    let sight = Sight::of(&gateway, &me).await?;
    let of = Of {
        account_id: Some(account),
        seen: sight.calls(),
    };
    let (balances, left, mut rows, live_keys) = tokio::try_join!(
        ledger.balances(account),
        ledger.grants_left(account),
        ledger.usage_days(account, (from, today), sight.sums(SumsOf::Day)),
        ledger.keys(account),
    )?;
    sight.restrict(&gateway, &mut rows).await?;
    let latest = Requests::read(&gateway, &Filter::default(), of, SHOWN_REQUESTS).await?;
    let mut keys = ledger.keys_with_ids(latest.key_ids()).await?;
    // What the playground was refused is no request with a key of one's own: the first steps still help.
    let of_playground = |row: &Listed| {
        let is_playgrounds = |id: &str| {
            keys.iter()
                .any(|key| key.id == id && is_playground_key(key))
        };
        matches!(row, Listed::Refused(one) if is_playgrounds(&one.key_id))
    };
    let is_new = latest.rows.iter().all(of_playground) && latest.next().is_none();
    let mut own = live_keys.iter().filter(|key| me.sees_key(key));
    let is_ready = |key: &Key| key.state == KeyState::Active && !is_playground_key(key);
    let has_key = own.any(is_ready);
    keys.retain(|key| me.sees_key(key));
    let content = html! {
        h1 { "Overview" }
        @if me.account.closed {
            p.problem role="alert" { "This account is closed: requests with its keys are refused." }
        }
        @if me.may(Right::Billing) {
            (notice::credit(&gateway.alerts, &balances, &left, !is_new))
        }
        (cards(&me, (&balances, &left), &days, &rows))
        @if !rows.is_empty() { div.charts { (chart(&days, &rows)) } }
        @if is_new && me.may(Right::Keys) {
            @if me.may(Right::Billing) { (starter_notice(&ledger.grants(account).await?)) }
            (first_steps(&gateway, &me, has_key, &balances))
        }
        @if me.may(Right::Requests) && !latest.rows.is_empty() {
            h2 { "Latest requests" }
            (requests::listed(&latest.rows, &keys))
            p { a href="/portal/requests" { "All requests" } }
        }
    };
    Ok(layout::page(&me, Place::Overview, "Overview", &content))
}

fn cards(
    me: &SignedIn,
    (balances, left): (&Balances, &[GrantLeft]),
    days: &[String],
    rows: &[DayUse],
) -> Markup {
    let week = days.len().checked_sub(7).map_or("", |at| days[at].as_str());
    let today = days.last().map_or("", String::as_str);
    // The first of the month, as the text of its day.
    let month = format!("{}01", today.get(..8).unwrap_or_default());
    let (spent_today, spent_week) = (spent(rows, today), spent(rows, week));
    let spent_month = spent(rows, &month);
    let in_week = || rows.iter().filter(|row| row.day.as_str() >= week);
    let calls: u64 = in_week().map(|row| row.calls).sum();
    let tokens: u64 = in_week().map(|row| row.prompt + row.completion).sum();
    html! {
        div.grid {
            @if me.may(Right::Billing) { (balance_card(balances, left, pace::days_left(left, timestamp::now(), days, rows))) }
            section.card {
                h2 title="Since midnight in UTC" { "Spent today" }
                p.figure title=(money(spent_today)) { (money_rounded(spent_today)) }
                p.muted title=(money(spent_week)) { (money_rounded(spent_week)) " in 7 days" }
                p.muted title=(money(spent_month)) { (money_rounded(spent_month)) " this month" }
                p { a href="/portal/usage" { "Usage" } }
            }
            section.card {
                h2 { "Requests in 7 days" }
                p.figure { (count(calls)) }
                p.muted { (count(tokens)) " tokens" }
                @if me.may(Right::Requests) { p { a href="/portal/requests" { "Requests" } } }
            }
        }
    }
}

/// What was spent since a day.
fn spent(rows: &[DayUse], since: &str) -> NanoUsd {
    let rows = rows.iter().filter(|row| row.day.as_str() >= since);
    let costs = rows.map(|row| row.cost.nanos());
    NanoUsd::new(costs.fold(0, i64::saturating_add))
}

/// The daily cost of the last days.
fn chart(days: &[String], rows: &[DayUse]) -> Markup {
    let days = &days[days.len().saturating_sub(DAYS.into())..];
    let cost_on = |day: &String| {
        let costs = rows.iter().filter(|row| row.day == *day);
        let costs = costs.map(|row| u64::try_from(row.cost.nanos()).unwrap_or(0));
        costs.fold(0, u64::saturating_add)
    };
    let chart = Chart {
        title: "Daily cost",
        unit: Unit::Dollars,
        days,
        series: vec![Series {
            name: format!("Cost in {DAYS} days"),
            values: days.iter().map(cost_on).collect(),
        }],
    };
    chart.draw()
}

/// The balance, and for how many days it lasts.
fn balance_card(balances: &Balances, left: &[GrantLeft], days_left: Option<i64>) -> Markup {
    html! {
        section.card {
            h2 { "Balance" }
            p.figure title=(money(balances.balance)) { (money_rounded(balances.balance)) }
            @if let Some(days) = days_left {
                p title="At the mean daily cost of the last 7 days, without today; only credit that is spent before it expires counts" {
                    "At this pace, " (pace::in_words(days))
                }
            }
            p.muted {
                @if balances.held > NanoUsd::default() { (money_rounded(balances.held)) " reserved for running requests. " }
                (notice::expiry(left))
            }
            p { a href="/portal/billing" { "Billing" } }
        }
    }
}

/// Says to a new account what it got for signing up.
fn starter_notice(grants: &[Grant]) -> Markup {
    html! {
        @if let Some(starter) = starter::among(grants) {
            p.notice { "Your account starts with " (money(starter.amount)) " of credit." }
        }
    }
}

fn first_steps(gateway: &Gateway, me: &SignedIn, has_key: bool, balances: &Balances) -> Markup {
    html! {
        section.card {
            h2 { "Your first request" }
            ol.steps {
                @if me.may(Right::Billing) && balances.available <= NanoUsd::default() {
                    li { "Add credit: see " a href="/portal/billing" { "Billing" } "." }
                }
                li {
                    @if has_key { "You have an API key. Lost it? " a href="/portal/keys" { "Create another" } "." }
                    @else { a href="/portal/keys" { "Create an API key" } "." }
                }
                li { "Send this, with the key in its place, or try the " a href="/portal/playground" { "playground" } " first:" }
            }
            (snippets::all(&gateway.portal.url, "YOUR_API_KEY"))
        }
    }
}
