//! Billing details: the customer's name and address on receipts and statements.

use std::sync::Arc;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use maud::html;
use serde::Deserialize;

use crate::{
    gateway::{Gateway, actions::OperatorActions},
    portal::{
        confirmation::Confirmation,
        error::PortalError,
        form::SignedForm,
        layout::{self, Page, Place},
        session::SignedIn,
        sign_in::problem_notice,
    },
};

const PATH: &str = "/portal/billing/details";
const MAX_CHARS: usize = 500;
const MAX_LINES: usize = 12;

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    let stored = gateway.backoffice.bill_to(&me.account.id).await?;
    Ok(page(&me, &stored, None))
}

fn page(me: &SignedIn, bill_to: &str, problem: Option<&str>) -> Page {
    let content = html! {
        p.back { a href="/portal/billing" { "Billing" } }
        h1 { "Billing details" }
        p { "Your name, address and tax number on receipts and statements." }
        (problem_notice(problem))
        form.stack method="post" action=(PATH) {
            (me.token_field())
            label { "Name and address"
                textarea name="bill_to" rows="6" maxlength=(MAX_CHARS) aria-describedby="bill-to-hint" { (bill_to) }
                span.muted #bill-to-hint { "Up to " (MAX_LINES) " lines. Empty: the account’s name and email." }
            }
            button.primary type="submit" { "Save" }
        }
    };
    layout::page(me, Place::Billing, "Billing details", &content)
}

#[derive(Deserialize)]
pub(crate) struct DetailsForm {
    #[serde(default)]
    bill_to: String,
}

pub(crate) async fn set(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form }: SignedForm<DetailsForm>,
) -> Result<Response, PortalError> {
    let lines: Vec<_> = form.bill_to.trim().lines().map(str::trim_end).collect();
    let is_text = |line: &&str| !line.contains(char::is_control);
    let bill_to = lines.join("\n");
    let problem = if !lines.iter().all(is_text) {
        Some("Use letters, digits and punctuation only.")
    } else if lines.len() > MAX_LINES || bill_to.chars().count() > MAX_CHARS {
        Some("This is too long: enter at most 12 lines and 500 characters.")
    } else {
        None
    };
    if problem.is_some() {
        let page = page(&me, &form.bill_to, problem);
        return Ok((StatusCode::BAD_REQUEST, page).into_response());
    }
    let actions = OperatorActions::by(&gateway, &me.person.email);
    let set = actions.set_bill_to(me.account.id.clone(), bill_to).await;
    let before = set.map_err(|error| PortalError::Unavailable(error.to_string()))?;
    let done = Confirmation::new("Billing details saved.").undone_by(PATH, &[("bill_to", &before)]);
    Ok(me.redirect("/portal/billing", &done))
}
