//! A forgotten password: a letter with a link to set another, where letters can be sent.
//!
//! The answer is the same, and there as soon, whether or not the address has an account.

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
    sign_in::{told, visited},
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

const TITLE: &str = "A forgotten password";

pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
) -> Result<Response, PortalError> {
    if gateway.mail.is_none() {
        return Err(PortalError::NotFound);
    }
    Ok(visited(&gateway, &headers, |visit| form(visit, "", None)))
}

fn form(visit: &Token, email: &str, problem: Option<&str>) -> Response {
    let content = html! {
        h1 { (TITLE) }
        p { "We write to you, with a link to set another one." }
        (told(problem))
        form.stack method="post" action="/portal/forgotten" {
            (token_field(visit))
            label { "E-mail"
                input type="email" name="email" value=(email) required autocomplete="username" autofocus;
            }
            button.primary type="submit" { "Write to me" }
        }
        p.muted { a href="/portal/sign-in" { "Sign in" } }
    };
    layout::plain(TITLE, &content).into_response()
}

#[derive(Deserialize)]
pub struct Forgotten {
    email: String,
}

pub async fn ask(
    State(gateway): State<Arc<Gateway>>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    OpenForm(sent): OpenForm<Forgotten>,
) -> Result<Response, PortalError> {
    if gateway.mail.is_none() {
        return Err(PortalError::NotFound);
    }
    let email = sent.email.trim();
    if let Some(problem) = email_problem(&gateway, email) {
        let mut response = visited(&gateway, &headers, |visit| {
            form(visit, email, Some(problem))
        });
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    }
    let peer = peer.map(|Extension(Peer(address))| address);
    let throttle = &gateway.portal.throttle;
    throttle
        .message(email, peer)
        .map_err(|seconds| PortalError::TooMany { seconds })?;
    let person = gateway.backoffice.person_by_email(email).await?;
    let inside = gateway.clone();
    gateway.send_later(async move { message(&inside, &person?).await });
    let content = html! {
        h1 { "Look into your mailbox" }
        p { "If " strong { (email) } " has an account here, a letter with a link is on its way to it. The link is good for an hour." }
        p.muted { "Nothing there? Look among what is taken for spam, or " a href="/portal/forgotten" { "try again" } "." }
    };
    Ok(layout::plain("Look into your mailbox", &content).into_response())
}

/// To the address as it is kept: one that is only alike when compared might be another's mailbox.
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
            tracing::error!(%error, "a link for a forgotten password could not be made");
            None
        }
    }
}
