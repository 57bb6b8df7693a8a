//! A new person, with an account of their own.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    cookies::Token,
    error::PortalError,
    form::OpenForm,
    layout, oidc, proof,
    session::{new_account, token_field},
    sign_in::{begin, told, visited},
};
use crate::{
    api::Peer,
    backoffice::{BackofficeError, NewPerson, Person, Role, mail},
    base::{keys::random_id, timestamp},
    gateway::Gateway,
};

/// Long enough that guessing does not lead anywhere; the rest is up to its owner.
pub const MIN_PASSWORD: usize = 10;
const MAX_PASSWORD: usize = 200;
pub const MAX_NAME: usize = 100;

#[derive(Default, Deserialize)]
pub struct SignUp {
    #[serde(default)]
    pub name: String,
    pub email: String,
    /// Chosen later, where a letter goes first.
    #[serde(default)]
    password: String,
}

pub async fn show(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    if !gateway.portal.sign_up_open {
        return closed();
    }
    let form = if gateway.mail.is_some() {
        proof::form
    } else {
        form
    };
    visited(&gateway, &headers, |visit| {
        form(&gateway, visit, &SignUp::default(), None)
    })
}

pub fn closed() -> Response {
    let content = html! {
        h1 { "Make an account" }
        p { "Accounts are made by the operator of this gateway. Ask them for one." }
        p { a href="/portal/sign-in" { "Sign in" } }
    };
    let mut response = layout::plain("Make an account", &content).into_response();
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

fn form(gateway: &Gateway, visit: &Token, sent: &SignUp, problem: Option<&str>) -> Response {
    let content = html! {
        h1 { "Make an account" }
        (told(problem))
        (oidc::way_in(gateway, ""))
        form.stack method="post" action="/portal/sign-up" {
            (token_field(visit))
            (who(sent))
            label { "Password"
                input type="password" name="password" required minlength=(MIN_PASSWORD)
                    maxlength=(MAX_PASSWORD) autocomplete="new-password" aria-describedby="password-hint";
                span.muted #password-hint { "At least " (MIN_PASSWORD) " characters." }
            }
            button.primary type="submit" { "Make an account" }
        }
        p.muted { "Already have one? " a href="/portal/sign-in" { "Sign in" } "." }
    };
    layout::plain("Make an account", &content).into_response()
}

/// The fields that say who it is.
pub fn who(sent: &SignUp) -> Markup {
    html! {
        label { "Name " span.muted { "(optional)" }
            input type="text" name="name" value=(sent.name) maxlength=(MAX_NAME) autocomplete="name";
        }
        label { "E-mail"
            input type="email" name="email" value=(sent.email) required autocomplete="username";
        }
    }
}

pub async fn sign_up(
    State(gateway): State<Arc<Gateway>>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    OpenForm(sent): OpenForm<SignUp>,
) -> Result<Response, PortalError> {
    if !gateway.portal.sign_up_open {
        return Ok(closed());
    }
    if gateway.mail.is_some() {
        return proof::ask(&gateway, peer, &headers, &sent).await;
    }
    let again = |problem: &str| {
        let mut response = visited(&gateway, &headers, |visit| {
            form(&gateway, visit, &sent, Some(problem))
        });
        *response.status_mut() = StatusCode::BAD_REQUEST;
        Ok(response)
    };
    let problem = email_problem(&gateway, sent.email.trim())
        .or_else(|| name_problem(&sent.name))
        .or_else(|| password_problem(&sent.password));
    if let Some(problem) = problem {
        return again(problem);
    }
    let peer = peer.map(|Extension(Peer(address))| address);
    gateway
        .portal
        .throttle
        .sign_up(peer)
        .map_err(|seconds| PortalError::TooMany { seconds })?;
    let name = Some(sent.name.trim()).filter(|name| !name.is_empty());
    match enrol(
        &gateway,
        sent.email.trim(),
        name,
        &sent.password,
        Role::Customer,
    )
    .await
    {
        Ok(person) => begin(&gateway, &headers, &person, "/portal").await,
        Err(PortalError::Invalid(_)) => {
            again("This address cannot be used. If it is yours, sign in with it.")
        }
        Err(error) => Err(error),
    }
}

/// What is wrong with an address. Where letters are sent, one must be able to go there.
pub fn email_problem(gateway: &Gateway, email: &str) -> Option<&'static str> {
    let reachable = gateway.mail.is_none() || mail::is_address(email);
    (!is_address(email) || !reachable).then_some("That is not an e-mail address.")
}

pub fn name_problem(name: &str) -> Option<&'static str> {
    (!is_name(name)).then_some("That name is too long.")
}

/// Whether this may be somebody's address; whose it is, is another question.
pub fn is_address(email: &str) -> bool {
    let complete = email
        .split_once('@')
        .is_some_and(|(who, at)| !who.is_empty() && !at.is_empty());
    let strange = |c: char| c.is_whitespace() || c.is_control();
    complete && email.len() <= 254 && !email.contains(strange)
}

pub fn is_name(name: &str) -> bool {
    name.trim().chars().count() <= MAX_NAME && !name.contains(char::is_control)
}

/// What is wrong with a new password.
pub fn password_problem(password: &str) -> Option<&'static str> {
    match password.chars().count() {
        0..MIN_PASSWORD => Some("The password is too short: it needs at least 10 characters."),
        MIN_PASSWORD..=MAX_PASSWORD => None,
        _ => Some("The password is too long: 200 characters are the most."),
    }
}

/// Writes down a person and makes their account.
pub async fn enrol(
    gateway: &Gateway,
    email: &str,
    name: Option<&str>,
    password: &str,
    role: Role,
) -> Result<Person, PortalError> {
    let hash = gateway.backoffice.passwords.hash(password.to_owned()).await;
    let hash = hash.map_err(|error| PortalError::Unavailable(error.to_string()))?;
    let new = NewPerson {
        email: email.to_owned(),
        name: name.map(str::to_owned),
        password: Some(hash),
        role,
        account_id: random_id("acct_"),
        now: timestamp::now(),
    };
    let person = match gateway.backoffice.add_person(new).await {
        Err(error @ BackofficeError::EmailTaken) => {
            return Err(PortalError::Invalid(error.to_string()));
        }
        added => added?,
    };
    let account = new_account(gateway, &person);
    gateway
        .ledger
        .ensure_account(&person.account_id, account)
        .await?;
    Ok(person)
}
