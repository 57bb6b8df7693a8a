//! Credit: what there is, what of it expires when, and how it came to be what it is.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Router,
    extract::State,
    routing::{get, post},
};
use maud::{Markup, html};
use serde::Deserialize;

mod checkout;
pub mod payments;
mod returned;
mod test_payment;

use self::returned::Told;
use super::{
    error::PortalError,
    layout::{self, Page, Place},
    notice,
    query::{ReadQuery, given},
    requests,
    session::SignedIn,
    words::{moment, money},
};
use crate::{
    base::money::NanoUsd,
    gateway::Gateway,
    ledger::{Balances, Entry, EntryKind, Grant, GrantLeft},
};

const ON_A_PAGE: usize = 50;

/// Buying is there where somebody takes money, and pretending to where they only pretend.
pub fn router(gateway: &Gateway) -> Router<Arc<Gateway>> {
    let billing = Router::new().route("/portal/billing", get(show));
    let Some(payments) = &gateway.payments else {
        return billing;
    };
    let billing = billing.route("/portal/billing/checkout", post(checkout::begin));
    if payments.test.is_none() {
        return billing;
    }
    billing.route(
        "/portal/billing/test-payment/{checkout}",
        get(test_payment::show).post(test_payment::pay),
    )
}

#[derive(Default, Deserialize)]
pub struct Asked {
    before: Option<String>,
    /// The checkout that a browser comes back from.
    paid: Option<String>,
    cancelled: Option<String>,
}

impl Asked {
    /// The last entry of the page before.
    fn before(&self) -> Result<Option<i64>, PortalError> {
        let before = given(self.before.as_ref()).map(str::parse);
        let unknown =
            |_| PortalError::Invalid("There is no such page of your account's history.".into());
        before.transpose().map_err(unknown)
    }
}

/// What each grant is called, by its ID.
type Notes<'a> = HashMap<&'a str, &'a str>;

pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(asked): ReadQuery<Asked>,
) -> Result<Page, PortalError> {
    let told = returned::told(&gateway, &me, &asked).await?;
    Box::pin(page(&gateway, &me, asked.before()?, told)).await
}

async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    before: Option<i64>,
    told: Told,
) -> Result<Page, PortalError> {
    let (ledger, account) = (&gateway.ledger, me.account.id.as_str());
    let (balances, left, grants, mut entries) = tokio::try_join!(
        ledger.balances(account),
        ledger.grants_left(account),
        ledger.grants(account),
        ledger.entries_page(account, before, ON_A_PAGE + 1),
    )?;
    let bought = payments::of(gateway, account).await?;
    let notes: Notes<'_> = grants.iter().filter_map(note).collect();
    let more = entries.len() > ON_A_PAGE;
    entries.truncate(ON_A_PAGE);
    let next = entries.last().filter(|_| more);
    let content = html! {
        h1 { "Billing" }
        (told.words)
        (notice::credit(&gateway.alerts, &balances, !grants.is_empty()))
        (cards(&balances))
        (checkout::card(gateway, me))
        (expiries(&left, &notes))
        (payments::section(&bought))
        section {
            h2 { "History" }
            (history(&entries, &notes))
            nav.pages aria-label="Pages" {
                @if before.is_some() {
                    a href="/portal/billing" { "Newest entries" }
                }
                @if let Some(last) = next {
                    a rel="next" href={ "/portal/billing?before=" (last.seq) } { "Older entries" }
                }
            }
        }
    };
    let place = Place::Billing;
    Ok(layout::page_with(
        me, place, "Billing", &told.head, &content,
    ))
}

fn note(grant: &Grant) -> Option<(&str, &str)> {
    let reason = grant.reason.as_deref()?;
    (!reason.is_empty()).then_some((grant.id.as_str(), reason))
}

fn cards(balances: &Balances) -> Markup {
    html! {
        div.grid {
            section.card {
                h2 { "Balance" }
                p.figure { (money(balances.balance)) }
                @if balances.balance < NanoUsd::default() {
                    p.muted { "More was used than there was. The next credit pays this first." }
                }
            }
            section.card {
                h2 { "Set aside" }
                p.figure { (money(balances.held)) }
                p.muted { "For requests that are running." }
            }
            section.card {
                h2 { "Available" }
                p.figure { (money(balances.available)) }
                p.muted { "For new requests." }
            }
        }
    }
}

/// What is left of each grant, in the order in which they are used.
fn expiries(left: &[GrantLeft], notes: &Notes<'_>) -> Markup {
    html! {
        section {
            h2 { "What is left" }
            @if left.is_empty() {
                p.empty { "There is no credit left." }
            } @else {
                div.scroll tabindex="0" role="region" aria-label="What is left" {
                    table {
                        caption { "Credit, in the order in which it is used" }
                        thead {
                            tr {
                                th scope="col" { "Credit" }
                                th.number scope="col" { "Left" }
                                th.number scope="col" { "Of it set aside" }
                                th scope="col" { "Expires" }
                            }
                        }
                        tbody {
                            @for grant in left {
                                tr {
                                    th scope="row" { (note_of(notes, &grant.grant_id).unwrap_or("Credit")) }
                                    td.number { (money(grant.left)) }
                                    td.number { (money(grant.held)) }
                                    td {
                                        @match grant.expires_at {
                                            Some(at) => { (moment(at)) },
                                            None => { "Never" },
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn history(entries: &[Entry], notes: &Notes<'_>) -> Markup {
    html! {
        @if entries.is_empty() {
            p.empty { "There is nothing here." }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="History" {
                table {
                    caption { "Everything that changed the balance, newest first" }
                    thead {
                        tr {
                            th scope="col" { "When" }
                            th scope="col" { "What" }
                            th.number scope="col" { "Amount" }
                            th.number scope="col" { "Balance after" }
                        }
                    }
                    tbody {
                        @for entry in entries {
                            tr {
                                td { (moment(entry.at)) }
                                th scope="row" { (what(entry, notes)) }
                                td.number { (change(entry.delta)) }
                                td.number { (money(entry.balance_after)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn what(entry: &Entry, notes: &Notes<'_>) -> Markup {
    let note = note_of(notes, &entry.reference);
    html! {
        @match entry.kind {
            EntryKind::Grant => {
                "Credit added" @if let Some(note) = note { ": " (note) }
            },
            EntryKind::Expiry => {
                "Credit expired" @if let Some(note) = note { ": " (note) }
            },
            EntryKind::Charge => { "Request " (request(&entry.reference)) },
            EntryKind::Reversal => { "Charge taken back: request " (request(&entry.reference)) },
        }
    }
}

fn note_of<'a>(notes: &Notes<'a>, grant_id: &str) -> Option<&'a str> {
    notes.get(grant_id).copied()
}

/// A link to the request that an entry is for.
fn request(reference: &str) -> Markup {
    html! { a href=(requests::path(reference)) { code { (reference) } } }
}

fn change(delta: NanoUsd) -> String {
    let sign = if delta > NanoUsd::default() { "+" } else { "" };
    format!("{sign}{}", money(delta))
}
