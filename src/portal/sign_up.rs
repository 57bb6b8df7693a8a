//! Sign-up with a password, and the checks of addresses, names and passwords that other pages share.

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
    layout, oidc,
    session::{new_account, token_field},
    sign_in::{problem_notice, start_session, with_visit},
    sign_up_by_email,
};
use crate::{
    api::Peer,
    backoffice::{BackofficeError, NewPerson, Person, Role, TeamRole, mail},
    base::{keys::random_id, timestamp},
    gateway::Gateway,
};

/// The least length of a password. It makes guessing impractical; no other rules apply.
pub(crate) const MIN_PASSWORD: usize = 10;
const MAX_PASSWORD: usize = 200;
pub(crate) const MAX_NAME: usize = 100;

#[derive(Default, Deserialize)]
pub(crate) struct SignUp {
    #[serde(default)]
    pub name: String,
    pub email: String,
    /// Empty with `[mail]`: then it is chosen through the emailed link.
    #[serde(default)]
    password: String,
}

pub(crate) async fn show(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    if !gateway.portal.sign_up_open {
        return closed();
    }
    let form = if gateway.mail.is_some() {
        sign_up_by_email::form
    } else {
        form
    };
    with_visit(&gateway, &headers, |visit| {
        form(&gateway, visit, &SignUp::default(), None)
    })
}

pub(crate) fn closed() -> Response {
    let content = html! {
        h1 { "Create account" }
        p { "Accounts are created by the operator of this gateway. Ask them for one." }
        p { a href="/portal/sign-in" { "Sign in" } }
    };
    let mut response = layout::plain("Create account", &content).into_response();
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

fn form(gateway: &Gateway, visit: &Token, sent: &SignUp, problem: Option<&str>) -> Response {
    let content = html! {
        h1 { "Create account" }
        (problem_notice(problem))
        (oidc::sign_in_button(gateway, ""))
        form.stack method="post" action="/portal/sign-up" {
            (token_field(visit))
            (identity_fields(sent))
            label { "Password"
                input type="password" name="password" required minlength=(MIN_PASSWORD)
                    maxlength=(MAX_PASSWORD) autocomplete="new-password" aria-describedby="password-hint";
                span.muted #password-hint { "At least " (MIN_PASSWORD) " characters." }
            }
            button.primary type="submit" { "Create account" }
        }
        p.muted { "Already have one? " a href="/portal/sign-in" { "Sign in" } "." }
    };
    layout::plain("Create account", &content).into_response()
}

/// The form fields for name and email address.
pub(crate) fn identity_fields(sent: &SignUp) -> Markup {
    html! {
        label { "Name " span.muted { "(optional)" }
            input type="text" name="name" value=(sent.name) maxlength=(MAX_NAME) autocomplete="name";
        }
        label { "Email"
            input type="email" name="email" value=(sent.email) required autocomplete="username";
        }
    }
}

pub(crate) async fn sign_up(
    State(gateway): State<Arc<Gateway>>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
    OpenForm(sent): OpenForm<SignUp>,
) -> Result<Response, PortalError> {
    if !gateway.portal.sign_up_open {
        return Ok(closed());
    }
    if gateway.mail.is_some() {
        return sign_up_by_email::request_link(&gateway, peer, &headers, &sent).await;
    }
    let again = |problem: &str| {
        let mut response = with_visit(&gateway, &headers, |visit| {
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
        Ok(person) => start_session(&gateway, &headers, &person, "/portal").await,
        Err(PortalError::Invalid(_)) => {
            again("This address cannot be used. If it is yours, sign in with it.")
        }
        Err(error) => Err(error),
    }
}

/// What is wrong with an email address, if anything. With `[mail]` it must also be deliverable by SMTP.
pub(crate) fn email_problem(gateway: &Gateway, email: &str) -> Option<&'static str> {
    let reachable = gateway.mail.is_none() || mail::is_address(email);
    (!is_address(email) || !reachable).then_some("That is not an email address.")
}

pub(crate) fn name_problem(name: &str) -> Option<&'static str> {
    (!is_name(name)).then_some("That name is too long.")
}

/// Whether the text has the form of an email address. Ownership is not checked.
pub(crate) fn is_address(email: &str) -> bool {
    let complete = email
        .split_once('@')
        .is_some_and(|(who, at)| !who.is_empty() && !at.is_empty());
    let strange = |c: char| c.is_whitespace() || c.is_control();
    complete && email.len() <= 254 && !email.contains(strange)
}

pub(crate) fn is_name(name: &str) -> bool {
    name.trim().chars().count() <= MAX_NAME && !name.contains(char::is_control)
}

/// What is wrong with a new password, if anything.
pub(crate) fn password_problem(password: &str) -> Option<&'static str> {
    match password.chars().count() {
        0..MIN_PASSWORD => Some("The password is too short: it needs at least 10 characters."),
        MIN_PASSWORD..=MAX_PASSWORD => None,
        _ => Some("The password is too long: it can have at most 200 characters."),
    }
}

/// Stores a person and creates their account.
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
        team_role: TeamRole::Owner,
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
