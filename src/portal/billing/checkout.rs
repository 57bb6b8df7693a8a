//! Buying credit: the amount is chosen here and paid on the payment provider's page.

use std::sync::Arc;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{page, returned::Banner};
use crate::{
    backoffice::{
        NewCheckout,
        payments::{Order, Payments},
    },
    base::{money::NanoUsd, timestamp},
    config::Offer,
    gateway::Gateway,
    portal::{error::PortalError, form::SignedForm, formatting::money, layout, session::SignedIn},
    wire::error::Cause,
};

/// How many unpaid checkouts an account may have begun within [`OPEN_SECONDS`].
const MAX_OPEN: i64 = 10;
const OPEN_SECONDS: u32 = 3_600;

/// The card to add credit.
pub(crate) fn card(gateway: &Gateway, me: &SignedIn) -> Markup {
    html! {
        section.card #add-credit {
            h2 { "Add credit" }
            @match &gateway.payments {
                Some(_) if me.account.closed => {
                    p { "This account is closed. Ask your provider to reopen it." }
                },
                Some(payments) => (forms(payments, me)),
                None => p { "Ask your provider for more credit." },
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
            label { "Other amount (US dollars)"
                input type="text" name="amount" required inputmode="decimal" autocomplete="off"
                    placeholder="50.00" aria-describedby="amount-hint";
            }
            button type="submit" { "Add credit" }
        }
        p.muted #amount-hint { (bounds(&payments.offer)) }
        p.muted {
            @if payments.is_test() { "Test mode: no card is charged." }
            @else { "You pay on " (payments.provider.name()) "’s page. We never see your card number." }
            @if let Some(days) = payments.offer.credit_days {
                " Purchased credit expires after " (days) " days."
            }
        }
    }
}

fn bounds(offer: &Offer) -> String {
    let (least, most) = (money(offer.min), money(offer.max));
    format!("Enter {least} to {most}, in whole cents.")
}

#[derive(Deserialize)]
pub(crate) struct CheckoutForm {
    #[serde(default)]
    amount: String,
}

pub(crate) async fn begin(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form }: SignedForm<CheckoutForm>,
) -> Result<Response, PortalError> {
    let payments = gateway.payments.as_ref().ok_or(PortalError::NotFound)?;
    if me.account.closed {
        return Err(PortalError::Invalid("This account is closed.".into()));
    }
    let Some(amount) = payments.offer.amount(&form.amount) else {
        let problem = format!("This amount is not available. {}", bounds(&payments.offer));
        return refused(&gateway, &me, StatusCode::BAD_REQUEST, &problem).await;
    };
    order(&gateway, &me, payments, amount, None).await
}

/// Orders credit, and leads to the provider's page to pay. With the consent to auto top-up, the card is saved for it.
pub(super) async fn order(
    gateway: &Arc<Gateway>,
    me: &SignedIn,
    payments: &Payments,
    amount: NanoUsd,
    consent_id: Option<String>,
) -> Result<Response, PortalError> {
    let now = timestamp::now();
    let saves_card = consent_id.is_some();
    let new = NewCheckout {
        provider: payments.provider.key(),
        account_id: me.account.id.clone(),
        person: me.person.email.clone(),
        amount,
        now,
        consent_id,
    };
    // The checkout is stored before the provider knows of it, so that every payment finds its account.
    let since = now - i64::from(OPEN_SECONDS);
    let opened = gateway
        .backoffice
        .open_checkout(new, since, MAX_OPEN)
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
        saves_card,
        paid_url: &back("paid"),
        cancelled_url: &back("cancelled"),
    };
    match payments.provider.begin(&order).await {
        Ok(begun) => {
            // The payment event contains the session too, so a failure here is only logged.
            let kept = gateway
                .backoffice
                .checkout_begun(&checkout.id, &begun.session);
            if let Err(error) = kept.await {
                tracing::warn!(checkout = checkout.id, %error, "storing the provider's session of a checkout failed; the payment event will bring it");
            }
            Ok(provider_redirect_page(payments.provider.name(), &begun.url))
        }
        Err(error) => {
            let problem = "We cannot reach the payment page right now. You were not charged. Try again in a moment.";
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let mut response = refused(gateway, me, status, problem).await?;
            tracing::warn!(checkout = checkout.id, %error, "the payment provider did not start the checkout; it is dropped");
            // The checkout can never be paid, so it is deleted and does not count as unpaid. If that fails, it
            // only counts.
            let _ = gateway.backoffice.drop_checkout(&checkout.id).await;
            let cause = Cause(format!("the payment provider: {error}"));
            response.extensions_mut().insert(cause);
            Ok(response)
        }
    }
}

/// A page with a link and a meta refresh to the provider's page. A redirect is not possible: `form-action
/// 'self'` in our content security policy also applies to the redirect targets of a form, but not to links.
fn provider_redirect_page(name: &str, url: &str) -> Response {
    let head = html! { meta http-equiv="refresh" content={ "0; url=" (url) }; };
    let content = html! {
        h1 { "Continue to " (name) }
        p { a.button href=(url) rel="noreferrer" { "Continue" } }
    };
    layout::plain_with("One moment", &head, &content).into_response()
}

/// The billing page with an error message.
async fn refused(
    gateway: &Gateway,
    me: &SignedIn,
    status: StatusCode,
    problem: &str,
) -> Result<Response, PortalError> {
    let page = Box::pin(page(gateway, me, None, Banner::problem(problem))).await?;
    Ok((status, page).into_response())
}
