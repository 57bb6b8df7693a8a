//! Deleting the account, which asks on a page of its own. It cannot be undone.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{PATH, framed, proof};
use crate::{
    api::Peer,
    backoffice::email_key,
    gateway::{Gateway, actions::OperatorActions},
    portal::{
        cookies::{self, Kind},
        error::PortalError,
        form::SignedForm,
        formatting::money,
        layout::{self, Page},
        session::SignedIn,
        sign_in::problem_notice,
    },
};

const TITLE: &str = "Delete this account?";

/// The section of the settings page.
pub(super) fn section(me: &SignedIn) -> Markup {
    html! {
        section #delete {
            h2 { "Delete account" }
            @if me.is_owner() {
                p { "Deletes the account for all of its members, with its API keys. You are asked again before anything happens." }
                p.inline {
                    a.button.bad href="/portal/settings/delete" { "Delete account" }
                }
                p.muted { "Only want to leave yourself? If the account has another owner, you can " a href="/portal/members/leave" { "leave it" } "." }
            } @else {
                p { "You can leave this account: you are removed from it, and the keys that you made are deleted. Only an owner can delete the whole account." }
                p { a.button.bad href="/portal/members/leave" { "Leave this account" } }
            }
        }
    }
}

pub(super) async fn confirm(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    page(&gateway, &me, None).await
}

async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    problem: Option<&str>,
) -> Result<Page, PortalError> {
    let (ledger, id) = (&gateway.ledger, &me.account.id);
    let balance = ledger.balances(id).await?.balance;
    let (keys, people) = (
        ledger.keys(id).await?.len(),
        gateway.backoffice.people_of(id).await?.len(),
    );
    let content = html! {
        nav.back aria-label="Back" { a href=(PATH) { "Settings" } }
        h1 { (TITLE) }
        (problem_notice(problem))
        p { strong { "This cannot be undone." } " When you delete the account " code { (id) } ":" }
        ul {
            li { "API keys (" (keys) ") are deleted at once. Requests that are running finish and are charged." }
            li { "Members (" (people) ") are signed out and removed, and open invitations end." }
            li {
                @if balance.nanos() > 0 {
                    "Remaining credit, " strong { (money(balance)) } ", is lost. If you want it refunded, ask the operator of this gateway "
                    strong { "before" } " you delete the account."
                } @else {
                    "There is no remaining credit."
                }
            }
            li { "Stored responses are deleted." }
            li { "Names and email addresses are deleted. Amounts, dates and IDs of requests and payments are kept for accounting." }
            li { "Billing details, receipts and monthly statements are kept as they are, with the name and address in them: they prove payments." }
        }
        p {
            "You can create a new account with the same email afterwards."
            @if gateway.portal.starter_credit.is_some() { " You will not get starter credit again." }
        }
        form.stack method="post" action="/portal/settings/delete" {
            (me.token_field())
            label { "Type your email to confirm: " strong { (me.person.email) }
                input type="text" inputmode="email" name="email" required maxlength="254" autocomplete="off" autocapitalize="none" spellcheck="false";
            }
            (proof::fields(me))
            div.inline {
                button.bad type="submit" { "Delete account" }
                a.button href=(PATH) { "Cancel" }
            }
        }
    };
    Ok(framed(me, TITLE, &content))
}

#[derive(Deserialize)]
pub(crate) struct DeleteForm {
    #[serde(default)]
    email: String,
    #[serde(flatten)]
    proof: proof::Proof,
}

pub(super) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Extension(peer): Extension<Peer>,
    SignedForm { me, form }: SignedForm<DeleteForm>,
) -> Result<Response, PortalError> {
    if email_key(&form.email) != email_key(&me.person.email) {
        let problem = "Type your email, so that no account is deleted by mistake.";
        return refused(&gateway, &me, problem).await;
    }
    if let Err(problem) = proof::check(&gateway, &me, peer, form.proof).await? {
        return refused(&gateway, &me, problem).await;
    }
    let actions = OperatorActions::by(&gateway, &me.person.email);
    let forfeited = actions.delete_account(me.person.clone()).await?;
    let content = html! {
        h1 { "Your account is deleted" }
        p { "Its API keys no longer work, and its members can no longer sign in." }
        @if forfeited.nanos() > 0 { p { "Its remaining credit was " (money(forfeited)) "." } }
        p { "Its ID was " code { (me.account.id) } ". Quote it if you have a question about a payment." }
    };
    let mut response = layout::plain("Your account is deleted", &content).into_response();
    let (headers, secure) = (response.headers_mut(), gateway.portal.is_secure());
    for kind in [Kind::Session, Kind::Device] {
        headers.append(header::SET_COOKIE, cookies::forget(kind, secure));
    }
    Ok(response)
}

async fn refused(gateway: &Gateway, me: &SignedIn, problem: &str) -> Result<Response, PortalError> {
    let page = page(gateway, me, Some(problem)).await?;
    Ok((StatusCode::BAD_REQUEST, page).into_response())
}
