//! The billing page: balance, remaining credit with its expiry dates, payments and the history of entries.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Router,
    extract::State,
    routing::{get, post},
};
use maud::{Markup, html};
use serde::Deserialize;

mod checkout;
mod csv;
pub(crate) mod payments;
mod returned;
mod test_payment;

use self::returned::Banner;
use super::{
    error::PortalError,
    formatting::{moment, money},
    layout::{self, Page, Place},
    notice,
    query::{ReadQuery, non_empty},
    requests,
    rights::Right,
    session::SignedIn,
};
use crate::{
    base::money::NanoUsd,
    gateway::Gateway,
    ledger::{Balances, Entry, EntryKind, Grant, GrantLeft},
};

const PAGE_SIZE: usize = 50;

/// Routes of the billing pages. Checkout exists only with a payment provider, the test payment page only with
/// the built-in test provider.
pub(crate) fn router(gateway: &Gateway) -> Router<Arc<Gateway>> {
    let billing = Router::new()
        .route("/portal/billing", get(show))
        .route("/portal/billing.csv", get(csv::download));
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
pub(crate) struct BillingQuery {
    before: Option<String>,
    /// ID of the checkout from which the browser returns, paid or cancelled.
    paid: Option<String>,
    cancelled: Option<String>,
}

impl BillingQuery {
    /// The sequence number of the last entry of the previous page.
    fn before(&self) -> Result<Option<i64>, PortalError> {
        let before = non_empty(self.before.as_ref()).map(str::parse);
        let unknown =
            |_| PortalError::Invalid("There is no such page of your account's history.".into());
        before.transpose().map_err(unknown)
    }
}

/// The reason of each grant, by grant ID.
type Notes<'a> = HashMap<&'a str, &'a str>;

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<BillingQuery>,
) -> Result<Page, PortalError> {
    let banner = returned::banner(&gateway, &me, &query).await?;
    Box::pin(page(&gateway, &me, query.before()?, banner)).await
}

async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    before: Option<i64>,
    banner: Banner,
) -> Result<Page, PortalError> {
    let (ledger, account) = (&gateway.ledger, me.account.id.as_str());
    let (balances, left, grants, mut entries) = tokio::try_join!(
        ledger.balances(account),
        ledger.grants_left(account),
        ledger.grants(account),
        ledger.entries_page(account, before, PAGE_SIZE + 1),
    )?;
    let bought = payments::recent(gateway, account).await?;
    let notes: Notes<'_> = grants.iter().filter_map(note).collect();
    let more = entries.len() > PAGE_SIZE;
    entries.truncate(PAGE_SIZE);
    let next = entries.last().filter(|_| more);
    let content = html! {
        h1 { "Billing" }
        (banner.content)
        (notice::credit(&gateway.alerts, &balances, !grants.is_empty()))
        (cards(&balances))
        (checkout::card(gateway, me))
        (expiries(&left, &notes))
        (payments::section(&bought))
        section {
            h2 { "History" }
            (history(me, &entries, &notes))
            @if !entries.is_empty() {
                p { a.button href="/portal/billing.csv" download { "Download as CSV" } }
            }
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
        me,
        place,
        "Billing",
        &banner.head,
        &content,
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
                h2 { "Held" }
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

/// The remainder of each grant, in the order in which grants are used.
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
                                th.number scope="col" { "Held" }
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

fn history(me: &SignedIn, entries: &[Entry], notes: &Notes<'_>) -> Markup {
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
                                th scope="row" { (description(me, entry, notes)) }
                                td.number { (signed_amount(entry.delta)) }
                                td.number { (money(entry.balance_after)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn description(me: &SignedIn, entry: &Entry, notes: &Notes<'_>) -> Markup {
    let note = note_of(notes, &entry.reference);
    html! {
        @match entry.kind {
            EntryKind::Grant => {
                "Credit added" @if let Some(note) = note { ": " (note) }
            },
            EntryKind::Expiry => {
                "Credit expired" @if let Some(note) = note { ": " (note) }
            },
            EntryKind::Charge => { "Request " (request(me, &entry.reference)) },
            EntryKind::Reversal => { "Charge taken back: request " (request(me, &entry.reference)) },
            EntryKind::Opening => { "Balance brought forward from before " (entry.reference) },
        }
    }
}

fn note_of<'a>(notes: &Notes<'a>, grant_id: &str) -> Option<&'a str> {
    notes.get(grant_id).copied()
}

/// The request that an entry belongs to; a link if the person may open it.
fn request(me: &SignedIn, reference: &str) -> Markup {
    html! {
        @if me.may(Right::Requests) {
            a href=(requests::path(reference)) { code { (reference) } }
        } @else { code { (reference) } }
    }
}

fn signed_amount(delta: NanoUsd) -> String {
    let sign = if delta > NanoUsd::default() { "+" } else { "" };
    format!("{sign}{}", money(delta))
}
