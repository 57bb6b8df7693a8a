//! The start page: balance, recent usage, latest requests, and the first steps for a new account.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::{
    error::PortalError,
    formatting::{count, money, money_rounded},
    layout::{self, Page, Place},
    notice, requests,
    rights::Right,
    session::SignedIn,
    sight::Sight,
    snippets, starter,
};
use crate::{
    base::{money::NanoUsd, timestamp},
    gateway::Gateway,
    ledger::{Balances, CallsPage, DayUse, Grant, GrantLeft, KeyState},
};

const SHOWN_REQUESTS: usize = 8;
const DAYS: i64 = 7;

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    let (ledger, account) = (&gateway.ledger, me.account.id.as_str());
    let now = timestamp::now();
    let (from, today) = (
        timestamp::day(now - (DAYS - 1) * 86_400),
        timestamp::day(now),
    );
    let balances = ledger.balances(account).await?;
    let left = ledger.grants_left(account).await?;
    let sight = Sight::of(&gateway, &me).await?;
    let mut days = ledger.usage_days(account, &from, &today).await?;
    sight.restrict(&gateway, &mut days).await?;
    let live_keys = ledger.keys(account).await?;
    let latest = CallsPage {
        account_id: Some(account),
        key_id: None,
        model: None,
        outcome: None,
        seen: sight.calls(),
        before: None,
        limit: SHOWN_REQUESTS,
    };
    let calls = ledger.calls_page(&latest).await?;
    let mut own = live_keys.iter().filter(|key| me.sees_key(key));
    let has_key = own.any(|key| key.state == KeyState::Active);
    let used = calls.iter().map(|call| call.payer.key_id.as_str());
    let mut keys = ledger.keys_with_ids(used).await?;
    keys.retain(|key| me.sees_key(key));
    let content = html! {
        h1 { "Overview" }
        @if me.account.closed {
            p.problem role="alert" { "This account is closed: requests with its keys are refused." }
        }
        @if me.may(Right::Billing) {
            (notice::credit(&gateway.alerts, &balances, &left, !calls.is_empty()))
        }
        (cards(&me, (&balances, &left), &days, &today))
        @if calls.is_empty() && me.may(Right::Keys) {
            @if me.may(Right::Billing) { (starter_notice(&ledger.grants(account).await?)) }
            (first_steps(&gateway, &me, has_key, &balances))
        } @else if me.may(Right::Requests) {
            h2 { "Latest requests" }
            (requests::table(&calls, &keys))
            p { a href="/portal/requests" { "All requests" } }
        }
    };
    Ok(layout::page(&me, Place::Overview, "Overview", &content))
}

fn cards(
    me: &SignedIn,
    (balances, left): (&Balances, &[GrantLeft]),
    days: &[DayUse],
    today: &str,
) -> Markup {
    let sum = |of: &dyn Fn(&DayUse) -> i64| days.iter().map(of).fold(0_i64, i64::saturating_add);
    let spent = NanoUsd::new(sum(&|day| day.cost.nanos()));
    let spent_today = NanoUsd::new(sum(&|day| {
        if day.day == today {
            day.cost.nanos()
        } else {
            0
        }
    }));
    let calls: u64 = days.iter().map(|day| day.calls).sum();
    let tokens: u64 = days.iter().map(|day| day.prompt + day.completion).sum();
    html! {
        div.grid {
            @if me.may(Right::Billing) { (balance_card(balances, left)) }
            section.card {
                h2 { "Spent in 7 days" }
                p.figure title=(money(spent)) { (money_rounded(spent)) }
                p.muted title=(money(spent_today)) { (money_rounded(spent_today)) " today" }
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

fn balance_card(balances: &Balances, left: &[GrantLeft]) -> Markup {
    html! {
        section.card {
            h2 { "Balance" }
            p.figure title=(money(balances.balance)) { (money_rounded(balances.balance)) }
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
                    li { "Get some credit: see " a href="/portal/billing" { "Billing" } "." }
                }
                li {
                    @if has_key { "You have a key. It was shown when it was made; " a href="/portal/keys" { "make another" } " if it is lost." }
                    @else { a href="/portal/keys" { "Create an API key" } "." }
                }
                li { "Send this, with the key in its place, or try the " a href="/portal/playground" { "playground" } " first:" }
            }
            (snippets::all(&gateway.portal.url, "YOUR_API_KEY"))
        }
    }
}
