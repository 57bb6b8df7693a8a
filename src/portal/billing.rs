//! The billing page: balance, remaining credit with its expiry dates, payments and the history by day.

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
mod details;
mod documents;
mod history;
pub(crate) mod payments;
mod remaining;
mod returned;
mod test_payment;
mod top_up;

use self::{history::History, returned::Banner};
use super::{
    error::PortalError,
    formatting::money,
    layout::{self, Page, Place},
    notice, paging,
    query::{ReadQuery, non_empty},
    session::SignedIn,
};
use crate::{
    base::{money::NanoUsd, timestamp},
    gateway::Gateway,
    ledger::{Balances, Grant},
};

/// Routes of the billing pages. Checkout exists only with a payment provider, the test payment page only with
/// the built-in test provider.
pub(crate) fn router(gateway: &Gateway) -> Router<Arc<Gateway>> {
    let billing = Router::new()
        .route("/portal/billing", get(show))
        .route("/portal/billing.csv", get(csv::download))
        .route(
            "/portal/billing/details",
            get(details::show).post(details::set),
        )
        .route("/portal/billing/payments", get(payments::list))
        .route("/portal/billing/statements", get(documents::list))
        .route(
            "/portal/billing/statements/{month}",
            get(documents::statement),
        )
        .route("/portal/billing/receipts/{number}", get(documents::receipt));
    let Some(payments) = &gateway.payments else {
        return billing;
    };
    let billing = billing
        .route("/portal/billing/checkout", post(checkout::begin))
        .route(
            "/portal/billing/top-up",
            get(top_up::show).post(top_up::set),
        )
        .route(
            "/portal/billing/top-up/off",
            get(top_up::confirm_off).post(top_up::turn_off),
        );
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
    /// The day, in seconds, before which the history is shown.
    fn before(&self) -> Result<Option<i64>, PortalError> {
        let before = non_empty(self.before.as_ref());
        let unknown =
            || PortalError::Invalid("There is no such page of your account's history.".into());
        let parse = |day| history::seconds(day).ok_or_else(unknown);
        before.map(parse).transpose()
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
    // Clocks of several gateways differ a little, so the newest page ends with tomorrow.
    let until = before.unwrap_or_else(|| timestamp::now() + 2 * 86_400);
    let (balances, left, grants, history) = tokio::try_join!(
        ledger.balances(account),
        ledger.grants_left(account),
        ledger.grants(account),
        History::before(gateway, account, until),
    )?;
    let (bought, top_up) = tokio::try_join!(
        async { Ok::<_, PortalError>(payments::recent(gateway, account).await?) },
        top_up::Shown::of(gateway, me),
    )?;
    let notes: Notes<'_> = grants.iter().filter_map(note).collect();
    let newest = before.map(|_| "/portal/billing");
    let older = history.older();
    let older = older.map(|day| format!("/portal/billing?before={day}#history"));
    let content = html! {
        h1 { "Billing" }
        (banner.content)
        (notice::credit(&gateway.alerts, &balances, &left, !grants.is_empty()))
        @if let Some(top_up) = &top_up { (top_up.notice()) }
        (cards(&balances, &notice::expiry(&left)))
        div.grid.buying {
            (checkout::card(gateway, me))
            @if let Some(top_up) = &top_up { (top_up.card()) }
            (documents_card())
        }
        (remaining::section(&left, &notes))
        (payments::section(&bought, true))
        section #history {
            h2 { "History" }
            (history.table(me, &grants))
            (paging::links("entries", newest, older.as_deref()))
            p { a.button href="/portal/billing.csv" download { "Download as CSV" } }
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

fn documents_card() -> Markup {
    html! {
        section.card {
            h2 { "Receipts and statements" }
            p { "Receipts are listed with your payments." }
            ul.plain {
                li { a href="/portal/billing/payments" { "Payments and receipts" } }
                li { a href="/portal/billing/statements" { "Monthly statements" } }
                li { a href="/portal/billing/details" { "Billing details" } }
            }
        }
    }
}

fn note(grant: &Grant) -> Option<(&str, &str)> {
    let reason = grant.reason.as_deref()?;
    (!reason.is_empty()).then_some((grant.id.as_str(), reason))
}

fn cards(balances: &Balances, expiry: &Markup) -> Markup {
    html! {
        div.grid {
            section.card {
                h2 { "Balance" }
                p.figure { (money(balances.balance)) }
                @if balances.balance < NanoUsd::default() {
                    p.muted { "You used more than you had. The next credit pays for this first." }
                } @else { p.muted { (expiry) } }
            }
            section.card {
                h2 { "Reserved" }
                p.figure { (money(balances.held)) }
                p.muted { "For running requests. What they do not use is released." }
            }
            section.card {
                h2 { "Available" }
                p.figure { (money(balances.available)) }
                p.muted { "For new requests." }
            }
        }
    }
}
