//! What an account has bought, or began to.

use maud::{Markup, html};

use crate::{
    backoffice::{BackofficeError, Checkout},
    gateway::Gateway,
    portal::words::{moment, money},
};

const SHOWN: usize = 20;

/// None where nobody takes money.
pub async fn of(gateway: &Gateway, account_id: &str) -> Result<Vec<Checkout>, BackofficeError> {
    match gateway.payments {
        Some(_) => gateway.backoffice.checkouts_of(account_id, SHOWN).await,
        None => Ok(Vec::new()),
    }
}

/// Nothing where nothing was ordered.
pub fn section(checkouts: &[Checkout]) -> Markup {
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
