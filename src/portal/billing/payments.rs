//! The list of an account's payments and unpaid checkouts.

use maud::{Markup, html};

use crate::{
    backoffice::{BackofficeError, Checkout},
    gateway::Gateway,
    portal::formatting::{moment, money},
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

/// The section with the list; empty if there are no checkouts.
pub(crate) fn section(checkouts: &[Checkout]) -> Markup {
    html! {
        @if !checkouts.is_empty() {
            section {
                h2 { "Payments" }
                div.scroll tabindex="0" role="region" aria-label="Payments" { (table(checkouts)) }
            }
        }
    }
}

fn table(checkouts: &[Checkout]) -> Markup {
    html! {
        table {
            caption { "The latest payments, newest first" }
            thead {
                tr {
                    th scope="col" { "When" }
                    th scope="col" { "By" }
                    th.number scope="col" { "Amount" }
                    th scope="col" { "State" }
                }
            }
            tbody {
                @for checkout in checkouts {
                    @let paid = checkout.receipt.as_ref();
                    tr {
                        td { (moment(paid.map_or(checkout.created_at, |paid| paid.paid_at))) }
                        th scope="row" { (checkout.person) }
                        td.number { (money(paid.map_or(checkout.amount, |paid| paid.amount))) }
                        td { (state(checkout)) }
                    }
                }
            }
        }
    }
}

fn state(checkout: &Checkout) -> Markup {
    match &checkout.receipt {
        None => html! { span.badge { "not paid" } },
        Some(receipt) if receipt.grant_id.is_none() => {
            html! { span.badge { "being confirmed" } }
        }
        Some(_) => html! { span.badge.good { "paid" } },
    }
}
