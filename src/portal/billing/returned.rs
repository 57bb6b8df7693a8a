//! The message on the billing page after a return from the payment provider.

use maud::{Markup, html};

use super::BillingQuery;
use crate::{
    backoffice::{Checkout, is_checkout},
    base::timestamp,
    gateway::Gateway,
    portal::{error::PortalError, formatting::money, query::non_empty, session::SignedIn, sign_in},
};

/// The page reloads every 3 seconds while a payment is being confirmed, for 30 minutes after the order.
const REFRESH_SECONDS: u32 = 3;
const REFRESH_FOR_SECONDS: i64 = 1_800;

/// A message at the top of the page, and the elements that it needs in the page's head.
#[derive(Default)]
pub(crate) struct Banner {
    pub head: Markup,
    pub content: Markup,
}

impl Banner {
    pub(crate) fn problem(problem: &str) -> Self {
        Self {
            content: sign_in::problem_notice(Some(problem)),
            ..Self::default()
        }
    }

    fn notice(text: &Markup) -> Self {
        Self {
            content: html! { p.notice role="status" { (text) } },
            ..Self::default()
        }
    }
}

pub(crate) async fn banner(
    gateway: &Gateway,
    me: &SignedIn,
    query: &BillingQuery,
) -> Result<Banner, PortalError> {
    let (paid, cancelled) = (
        non_empty(query.paid.as_ref()),
        non_empty(query.cancelled.as_ref()),
    );
    let Some(id) = paid.or(cancelled) else {
        return Ok(Banner::default());
    };
    let checkout = own(gateway, me, id).await?;
    let ordered = money(checkout.amount);
    let credited = checkout.receipt.as_ref();
    let credited = credited.filter(|receipt| receipt.grant_id.is_some());
    if let Some(receipt) = credited {
        let amount = money(receipt.amount);
        return Ok(Banner::notice(&html! {
            "Thank you. Your payment of " (amount) " was received, and the credit was added."
        }));
    }
    if checkout.receipt.is_none() && paid.is_none() {
        return Ok(Banner::notice(
            &html! { "Payment cancelled. You were not charged." },
        ));
    }
    let waits = timestamp::now() - checkout.created_at < REFRESH_FOR_SECONDS;
    let banner = Banner::notice(&html! {
        "Your payment of " (ordered) " is being confirmed. "
        @if waits { "This page updates by itself." }
        @else { "Some banks take days. The credit is added as soon as the payment arrives." }
    });
    let head = html! {
        @if waits { meta http-equiv="refresh" content=(REFRESH_SECONDS); }
    };
    Ok(Banner { head, ..banner })
}

/// The checkout, if it belongs to this account.
pub(crate) async fn own(
    gateway: &Gateway,
    me: &SignedIn,
    id: &str,
) -> Result<Checkout, PortalError> {
    if !is_checkout(id) {
        return Err(PortalError::NotFound);
    }
    let found = gateway.backoffice.checkout(id).await?;
    let own = found.filter(|checkout| checkout.account_id == me.account.id);
    own.ok_or(PortalError::NotFound)
}
