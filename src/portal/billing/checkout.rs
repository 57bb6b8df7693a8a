//! Buying credit: an amount is chosen here and paid for at the provider's.

use std::sync::Arc;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{page, returned::Told};
use crate::{
    backoffice::{
        NewCheckout,
        payments::{Order, Payments},
    },
    base::timestamp,
    config::Offer,
    gateway::Gateway,
    portal::{error::PortalError, form::SignedForm, layout, session::SignedIn, words::money},
    wire::error::Cause,
};

/// How many checkouts an account may have begun and not paid within this time.
const MOST_OPEN: i64 = 10;
const OPEN_SECONDS: u32 = 3_600;

/// How more credit is had.
pub fn card(gateway: &Gateway, me: &SignedIn) -> Markup {
    html! {
        section.card {
            h2 { "Add credit" }
            @match &gateway.payments {
                Some(_) if me.account.closed => {
                    p { "This account is closed. Ask your provider's operator to open it." }
                },
                Some(payments) => (forms(payments, me)),
                None => p { "Ask your provider's operator for more credit." },
            }
        }
    }
}

fn forms(payments: &Payments, me: &SignedIn) -> Markup {
    let Offer { amounts, .. } = &payments.offer;
    html! {
        @if !amounts.is_empty() {
            form.inline method="post" action="/portal/billing/checkout" {
                (me.token_field())
                @for amount in amounts {
                    button.primary type="submit" name="amount" value=(amount.to_string()) {
                        span.unseen { "Add " } (money(*amount))
                    }
                }
            }
        }
        form.inline method="post" action="/portal/billing/checkout" {
            (me.token_field())
            label { "Another amount in US dollars"
                input type="text" name="amount" required inputmode="decimal" autocomplete="off"
                    placeholder="50.00" aria-describedby="amount-hint";
            }
            button type="submit" { "Add credit" }
        }
        p.muted #amount-hint { (bounds(&payments.offer)) }
        p.muted {
            @if payments.test.is_some() { "This is a test: nothing is charged." }
            @else { "You pay at " (payments.provider.name()) "; we never see your card." }
            @if let Some(days) = payments.offer.credit_days {
                " What you buy expires after " (days) " days."
            }
        }
    }
}

fn bounds(offer: &Offer) -> String {
    let (least, most) = (money(offer.min), money(offer.max));
    format!("From {least} to {most}, in whole cents.")
}

#[derive(Deserialize)]
pub struct Chosen {
    #[serde(default)]
    amount: String,
}

pub async fn begin(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form }: SignedForm<Chosen>,
) -> Result<Response, PortalError> {
    let payments = gateway.payments.as_ref().ok_or(PortalError::NotFound)?;
    if me.account.closed {
        return Err(PortalError::Invalid("This account is closed.".into()));
    }
    let Some(amount) = payments.offer.amount(&form.amount) else {
        let problem = format!("That amount cannot be bought. {}", bounds(&payments.offer));
        return refused(&gateway, &me, StatusCode::BAD_REQUEST, &problem).await;
    };
    let now = timestamp::now();
    let new = NewCheckout {
        provider: payments.provider.key(),
        account_id: me.account.id.clone(),
        person: me.person.email.clone(),
        amount,
        now,
    };
    // Written down before anybody else hears of it: what is paid always finds its account.
    let since = now - i64::from(OPEN_SECONDS);
    let opened = gateway
        .backoffice
        .open_checkout(new, since, MOST_OPEN)
        .await?;
    let checkout = opened.ok_or(PortalError::TooMany {
        seconds: u64::from(OPEN_SECONDS),
    })?;
    let back = |how: &str| {
        format!(
            "{}/portal/billing?{how}={}",
            gateway.portal.url, checkout.id
        )
    };
    let order = Order {
        checkout: &checkout.id,
        account_id: &checkout.account_id,
        email: &checkout.person,
        amount,
        paid_url: &back("paid"),
        cancelled_url: &back("cancelled"),
    };
    match payments.provider.begin(&order).await {
        Ok(begun) => {
            // An event brings it along as well, so nobody has to wait for this to work.
            let kept = gateway
                .backoffice
                .checkout_begun(&checkout.id, &begun.session);
            if let Err(error) = kept.await {
                tracing::warn!(checkout = checkout.id, %error, "a checkout's session is not kept");
            }
            Ok(onwards(payments.provider.name(), &begun.url))
        }
        Err(error) => {
            let problem = "The payment page cannot be reached at the moment. Nothing was charged; try again in a moment.";
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let mut response = refused(&gateway, &me, status, problem).await?;
            tracing::warn!(checkout = checkout.id, %error, "a checkout was not begun");
            // Nobody can pay it, and it is not to count among the unpaid. If it stays, it is only that.
            let _ = gateway.backoffice.drop_checkout(&checkout.id).await;
            let cause = Cause(format!("the payment provider: {error}"));
            response.extensions_mut().insert(cause);
            Ok(response)
        }
    }
}

/// A page that leads on to the provider's. A redirect would not: the policy of our pages has forms end
/// with us, and browsers hold what a form is redirected to against it. A link is free to go.
fn onwards(name: &str, url: &str) -> Response {
    let head = html! { meta http-equiv="refresh" content={ "0; url=" (url) }; };
    let content = html! {
        h1 { "On to " (name) }
        p { a.button href=(url) rel="noreferrer" { "Go on" } }
    };
    layout::plain_with("One moment", &head, &content).into_response()
}

/// The page again, with what was wrong.
async fn refused(
    gateway: &Gateway,
    me: &SignedIn,
    status: StatusCode,
    problem: &str,
) -> Result<Response, PortalError> {
    let page = Box::pin(page(gateway, me, None, Told::problem(problem))).await?;
    Ok((status, page).into_response())
}
