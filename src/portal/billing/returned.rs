//! What somebody is told who comes back from the provider's page.

use maud::{Markup, html};

use super::Asked;
use crate::{
    backoffice::{Checkout, is_checkout},
    base::timestamp,
    gateway::Gateway,
    portal::{error::PortalError, query::given, session::SignedIn, sign_in, words::money},
};

/// How often a page that waits for a payment looks again, and how long after the order.
const LOOK_EVERY_SECONDS: u32 = 3;
const LOOK_FOR_SECONDS: i64 = 1_800;

/// Words for the top of the page, and what they need in its head.
#[derive(Default)]
pub struct Told {
    pub head: Markup,
    pub words: Markup,
}

impl Told {
    pub fn problem(problem: &str) -> Self {
        Self {
            words: sign_in::told(Some(problem)),
            ..Self::default()
        }
    }

    fn words(words: &Markup) -> Self {
        Self {
            words: html! { p.notice role="status" { (words) } },
            ..Self::default()
        }
    }
}

pub async fn told(gateway: &Gateway, me: &SignedIn, asked: &Asked) -> Result<Told, PortalError> {
    let (paid, cancelled) = (given(asked.paid.as_ref()), given(asked.cancelled.as_ref()));
    let Some(id) = paid.or(cancelled) else {
        return Ok(Told::default());
    };
    let checkout = own(gateway, me, id).await?;
    let ordered = money(checkout.amount);
    let credited = checkout.receipt.as_ref();
    let credited = credited.filter(|receipt| receipt.grant_id.is_some());
    if let Some(receipt) = credited {
        let amount = money(receipt.amount);
        return Ok(Told::words(&html! {
            "Thank you: " (amount) " was paid, and your credit is there."
        }));
    }
    if checkout.receipt.is_none() && paid.is_none() {
        return Ok(Told::words(
            &html! { "Nothing was charged, and no credit was added." },
        ));
    }
    let waits = timestamp::now() - checkout.created_at < LOOK_FOR_SECONDS;
    let told = Told::words(&html! {
        "Your payment of " (ordered) " is being confirmed. "
        @if waits { "This page looks again by itself." }
        @else { "Some banks take days; it is listed below once it is there." }
    });
    let head = html! {
        @if waits { meta http-equiv="refresh" content=(LOOK_EVERY_SECONDS); }
    };
    Ok(Told { head, ..told })
}

/// The checkout, if it is one of this account's.
pub async fn own(gateway: &Gateway, me: &SignedIn, id: &str) -> Result<Checkout, PortalError> {
    if !is_checkout(id) {
        return Err(PortalError::NotFound);
    }
    let found = gateway.backoffice.checkout(id).await?;
    let own = found.filter(|checkout| checkout.account_id == me.account.id);
    own.ok_or(PortalError::NotFound)
}
