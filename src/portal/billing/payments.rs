//! The list of an account's payments and unpaid checkouts.

use maud::{Markup, html};

use crate::{
    backoffice::{BackofficeError, Checkout, UNKNOWN},
    gateway::Gateway,
    portal::{
        formatting::{moment, money},
        table::scrolled,
    },
};

const SHOWN: usize = 20;

/// The latest checkouts of an account; empty without a payment provider.
pub(crate) async fn recent(
    gateway: &Gateway,
    account_id: &str,
) -> Result<Vec<Checkout>, BackofficeError> {
    match gateway.payments {
        Some(_) => gateway.backoffice.checkouts_of(account_id, SHOWN).await,
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
                (scrolled("Payments", &table(checkouts, links)))
            }
        }
    }
}

fn table(checkouts: &[Checkout], links: bool) -> Markup {
    html! {
        table {
            caption { "Latest payments, newest first" }
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
