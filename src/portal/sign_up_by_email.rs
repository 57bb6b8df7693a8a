//! Sign-up with `[mail]` configured: an emailed link proves that the address belongs to the visitor.
//!
//! Only the email says whether the address already has an account; the page does not.

use std::{net::IpAddr, sync::Arc};

use axum::{
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use maud::html;

use super::{
    cookies::Token,
    error::PortalError,
    layout, oidc,
    session::token_field,
    sign_in::{problem_notice, with_visit},
    sign_up::{SignUp, email_problem, identity_fields, name_problem},
};
use crate::{
    backoffice::{
        NewLink, Person, Purpose,
        mail::{Email, templates},
    },
    base::{keys::random_id, timestamp},
    gateway::Gateway,
};

pub(crate) fn form(
    gateway: &Gateway,
    visit: &Token,
    sent: &SignUp,
    problem: Option<&str>,
) -> Response {
    let content = html! {
        h1 { "Create account" }
        p { "We send you an email with a link to choose a password." }
        (problem_notice(problem))
        (oidc::sign_in_button(gateway, ""))
        form.stack method="post" action="/portal/sign-up" {
            (token_field(visit))
            (identity_fields(sent))
            button.primary type="submit" { "Send link" }
        }
        p.muted { "Already have one? " a href="/portal/sign-in" { "Sign in" } "." }
    };
    layout::plain("Create account", &content).into_response()
}

pub(crate) async fn request_link(
    gateway: &Arc<Gateway>,
    peer: IpAddr,
    headers: &HeaderMap,
    sent: &SignUp,
) -> Result<Response, PortalError> {
    let email = sent.email.trim();
    if let Some(problem) = email_problem(gateway, email).or_else(|| name_problem(&sent.name)) {
        let mut response = with_visit(gateway, headers, |visit| {
            form(gateway, visit, sent, Some(problem))
        });
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    }
    let throttle = &gateway.portal.throttle;
    throttle
        .message(email, peer)
        .map_err(|seconds| PortalError::TooMany { seconds })?;
    let person = gateway.backoffice.person_by_email(email).await?;
    let (inside, to, name) = (gateway.clone(), email.to_owned(), sent.name.clone());
    gateway.send_later(async move { message(&inside, person, to, &name).await });
    let content = html! {
        h1 { "Check your inbox" }
        p { "We sent a link to " strong { (email) } ". It works for a day." }
        p.muted { "No email? Check your spam folder, or " a href="/portal/sign-up" { "try again" } "." }
    };
    Ok(layout::plain("Check your inbox", &content).into_response())
}

async fn message(
    gateway: &Gateway,
    known: Option<Person>,
    email: String,
    name: &str,
) -> Option<Email> {
    let portal = &gateway.portal.url;
    if let Some(person) = known {
        return Some(templates::known_already(&person.email, portal));
    }
    let name = Some(name.trim()).filter(|name| !name.is_empty());
    let new = NewLink {
        email: email.clone(),
        purpose: Purpose::Proof {
            account_id: random_id("acct_"),
            name: name.map(str::to_owned),
        },
        made_by: None,
        now: timestamp::now(),
    };
    match gateway.backoffice.make_link(new).await {
        Ok(made) => {
            let link = gateway.portal.welcome_url(&made.secret);
            Some(templates::proof(&email, portal, &link))
        }
        Err(error) => {
            tracing::error!(%error, "creating a sign-up link failed; no email is sent");
            None
        }
    }
}
