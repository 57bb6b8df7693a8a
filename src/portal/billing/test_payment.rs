//! The payment page of the built-in test provider, on which no money is charged.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::Response,
};
use maud::html;

use super::returned::own;
use crate::{
    api,
    base::timestamp,
    gateway::Gateway,
    portal::{
        error::PortalError,
        form::{EmptyForm, SignedForm},
        formatting::money,
        layout::{self, Page, Place},
        session::SignedIn,
    },
};

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    let checkout = own(&gateway, &me, &id).await?;
    let content = html! {
        h1 { "Test payment" }
        p { "In test mode no card is needed, and no card is charged." }
        p.figure { (money(checkout.amount)) }
        form.inline method="post" action={ "/portal/billing/test-payment/" (checkout.id) } {
            (me.token_field())
            button.primary type="submit" { "Pay" }
            a.button href={ "/portal/billing?cancelled=" (checkout.id) } { "Cancel" }
        }
    };
    Ok(layout::page(&me, Place::Billing, "Test payment", &content))
}

/// Delivers the payment event that a real provider would send.
pub(crate) async fn pay(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    SignedForm { me, form: _ }: SignedForm<EmptyForm>,
) -> Result<Response, PortalError> {
    let payments = gateway.payments.as_ref();
    let test = payments.and_then(|payments| payments.test.as_ref());
    let test = test.ok_or(PortalError::NotFound)?;
    let checkout = own(&gateway, &me, &id).await?;
    let (headers, body) = test.event(&checkout.id, checkout.amount, timestamp::now());
    let delivered = api::public::delivered(&gateway, &headers, &body).await;
    delivered.map_err(|error| PortalError::Unavailable(error.to_string()))?;
    Ok(layout::redirect(&format!(
        "/portal/billing?paid={}",
        checkout.id
    )))
}
