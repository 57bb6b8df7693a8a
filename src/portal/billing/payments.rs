//! The list of an account's payments and unpaid checkouts.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};
use serde::Deserialize;

use crate::{
    backoffice::{BackofficeError, Checkout, UNKNOWN},
    gateway::Gateway,
    portal::{
        error::PortalError,
        formatting::{moment, money},
        layout::{self, Page, Place},
        paging,
        query::ReadQuery,
        session::SignedIn,
        table::scrolled,
    },
};

const PATH: &str = "/portal/billing/payments";
const SHOWN: usize = 20;

/// The latest checkouts of an account; empty without a payment provider.
pub(crate) async fn recent(
    gateway: &Gateway,
    account_id: &str,
) -> Result<Vec<Checkout>, BackofficeError> {
    match gateway.payments {
        Some(_) => {
            let backoffice = &gateway.backoffice;
            backoffice.checkouts_of(account_id, None, SHOWN).await
        }
        None => Ok(Vec::new()),
    }
}

/// The section with the list; empty if there are no checkouts. `links` is whether receipts are linked: they are pages of
/// the account's own people.
pub(crate) fn section(checkouts: &[Checkout], links: bool) -> Markup {
    html! {
        @if !checkouts.is_empty() {
            section {
                h2 { "Payments" }
                (scrolled("Payments", &table("Latest payments, newest first", checkouts, links)))
                @if links && checkouts.len() >= SHOWN { p { a href=(PATH) { "All payments" } } }
            }
        }
    }
}

#[derive(Deserialize)]
pub(super) struct PaymentsQuery {
    /// Time and ID of the last row of the page before.
    before: Option<String>,
}

/// All payments and unpaid checkouts, page by page. They are there without a payment provider too, because of the receipts.
pub(super) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<PaymentsQuery>,
) -> Result<Page, PortalError> {
    let before = paging::cursor(query.before.as_ref(), "payments", paging::position)?;
    let newest = before.is_some().then_some(PATH);
    let checkouts = gateway
        .backoffice
        .checkouts_of(&me.account.id, before, paging::QUERIED);
    let mut checkouts = checkouts.await?;
    let older = paging::cut(&mut checkouts)
        .map(|last| format!("{PATH}?before={}-{}", last.created_at, last.id));
    let content = html! {
        p.back { a href="/portal/billing" { "Billing" } }
        h1 { "Payments" }
        @if checkouts.is_empty() { p.empty { "No payments yet." } }
        @else { (scrolled("Payments", &table("All payments, newest first", &checkouts, true))) }
        (paging::links("payments", newest, older.as_deref()))
    };
    Ok(layout::page(&me, Place::Billing, "Payments", &content))
}

fn table(caption: &str, checkouts: &[Checkout], links: bool) -> Markup {
    html! {
        table {
            caption { (caption) }
            thead {
                tr {
                    th scope="col" { "Date" }
                    th scope="col" { "Ordered by" }
                    th.number scope="col" { "Amount" }
                    th scope="col" { "Status" }
                    th scope="col" { "Receipt" }
                }
            }
            tbody {
                @for checkout in checkouts {
                    @let paid = checkout.receipt.as_ref();
                    tr {
                        td data-label="Date" { (moment(paid.map_or(checkout.created_at, |paid| paid.paid_at))) }
                        th scope="row" data-label="Ordered by" {
                            (checkout.person) @if checkout.automatic { " " span.badge { "Auto top-up" } }
                        }
                        td.number data-label="Amount" { (money(paid.map_or(checkout.amount, |paid| paid.amount))) }
                        td data-label="Status" { (state(checkout)) }
                        td data-label="Receipt" {
                            @if let Some(paid) = paid {
                                @if links { a href={ "/portal/billing/receipts/" (paid.number) } { (paid.number) } }
                                @else { (paid.number) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn state(checkout: &Checkout) -> Markup {
    match &checkout.receipt {
        None => unpaid(checkout),
        Some(receipt) if receipt.grant_id.is_none() => {
            html! { span.badge { "Processing" } }
        }
        Some(_) => html! { span.badge.good { "Paid" } },
    }
}

fn unpaid(checkout: &Checkout) -> Markup {
    match &checkout.failed {
        Some((_, why)) if why == UNKNOWN => html! { span.badge.bad { "Outcome unknown" } },
        Some(_) => html! { span.badge.bad { "Failed" } },
        None if checkout.automatic => html! { span.badge { "Processing" } },
        None => html! { span.badge { "Not paid" } },
    }
}
