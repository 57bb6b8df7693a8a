//! Resetting a forgotten password by an emailed link. The pages exist only if `[mail]` is configured.
//!
//! The response and its timing are the same whether or not the address has an account, so that they do not
//! reveal it.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use maud::html;
use serde::Deserialize;

use super::{
    cookies::Token,
    error::PortalError,
    form::OpenForm,
    layout,
    session::token_field,
    sign_in::{problem_notice, with_visit},
    sign_up::email_problem,
};
use crate::{
    api::Peer,
    backoffice::{
        NewLink, Person, Purpose,
        mail::{Email, templates},
    },
    base::timestamp,
    gateway::Gateway,
};

const TITLE: &str = "Reset password";

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
) -> Result<Response, PortalError> {
    if gateway.mail.is_none() {
        return Err(PortalError::NotFound);
    }
    Ok(with_visit(&gateway, &headers, |visit| {
        form(visit, "", None)
    }))
}

fn form(visit: &Token, email: &str, problem: Option<&str>) -> Response {
    let content = html! {
        h1 { (TITLE) }
        p { "We send you an email with a link to set a new password." }
        (problem_notice(problem))
        form.stack method="post" action="/portal/forgotten" {
            (token_field(visit))
            label { "Email"
                input type="email" name="email" value=(email) required autocomplete="username" autofocus;
            }
            button.primary type="submit" { "Send link" }
        }
        p.muted { a href="/portal/sign-in" { "Sign in" } }
    };
    layout::plain(TITLE, &content).into_response()
}

#[derive(Deserialize)]
pub(crate) struct ForgottenForm {
    email: String,
}

pub(crate) async fn request_link(
    State(gateway): State<Arc<Gateway>>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
    OpenForm(sent): OpenForm<ForgottenForm>,
) -> Result<Response, PortalError> {
    if gateway.mail.is_none() {
        return Err(PortalError::NotFound);
    }
    let email = sent.email.trim();
    if let Some(problem) = email_problem(&gateway, email) {
        let mut response = with_visit(&gateway, &headers, |visit| {
            form(visit, email, Some(problem))
        });
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    }
    let throttle = &gateway.portal.throttle;
    throttle
        .message(email, peer)
        .map_err(|seconds| PortalError::TooMany { seconds })?;
    let person = gateway.backoffice.person_by_email(email).await?;
    let inside = gateway.clone();
    gateway.send_later(async move { message(&inside, &person?).await });
    let content = html! {
        h1 { "Check your inbox" }
        p { "If " strong { (email) } " has an account here, we sent a link to it. The link works for an hour." }
        p.muted { "No email? Check your spam folder, or " a href="/portal/forgotten" { "try again" } "." }
    };
    Ok(layout::plain("Check your inbox", &content).into_response())
}

/// Makes the link and the email for it. The email goes to the stored address: the submitted one may differ in
/// ways that the lookup ignores, and could be another person's mailbox.
async fn message(gateway: &Gateway, person: &Person) -> Option<Email> {
    let new = NewLink {
        email: person.email.clone(),
        purpose: Purpose::Reset {
            person_id: person.id.clone(),
        },
        made_by: None,
        now: timestamp::now(),
    };
    match gateway.backoffice.make_link(new).await {
        Ok(made) => {
            let link = gateway.portal.welcome_url(&made.secret);
            Some(templates::reset(&person.email, &gateway.portal.url, &link))
        }
        Err(error) => {
            tracing::error!(%error, "creating a password reset link failed; no email is sent");
            None
        }
    }
}
