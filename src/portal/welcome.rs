//! The landing page of one-time links: invitations, sign-up by email, password resets.
//!
//! A GET changes nothing, because mail scanners open links too; submitting the form redeems the link. The
//! secret passes from the URL into the form and to no third party: queries are not logged, and the
//! `Referrer-Policy` (`headers.rs`) keeps the URL from other sites.

use std::sync::Arc;

use axum::{
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
    layout,
    query::ReadQuery,
    session::{new_account, token_field},
    sign_in::{password_proven, problem_notice, with_visit},
    sign_up::{self, MAX_NAME, MIN_PASSWORD, name_problem, password_problem},
};
use crate::{
    backoffice::{BackofficeError, Digest, Link, MadeLink, Person, Purpose, Role, TeamRole},
    base::timestamp,
    gateway::Gateway,
    ledger::LedgerError,
};

#[derive(Deserialize)]
pub(crate) struct WelcomeQuery {
    #[serde(default)]
    link: String,
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    ReadQuery(query): ReadQuery<WelcomeQuery>,
    headers: HeaderMap,
) -> Result<Response, PortalError> {
    let Some(found) = UsableLink::by(&gateway, &query.link).await? else {
        return Ok(unusable(&gateway));
    };
    if found.is_closed(&gateway) {
        return Ok(sign_up::closed());
    }
    if found.is_taken(&gateway).await? {
        return Ok(email_taken(&gateway, &found.link));
    }
    let sent = WelcomeForm {
        name: found.name().to_owned(),
        link: query.link,
        password: String::new(),
    };
    Ok(with_visit(&gateway, &headers, |visit| {
        form(visit, &found, &sent, None)
    }))
}

#[derive(Deserialize)]
pub(crate) struct WelcomeForm {
    link: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    password: String,
}

pub(crate) async fn submit(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    OpenForm(sent): OpenForm<WelcomeForm>,
) -> Result<Response, PortalError> {
    // The link is checked before the password is hashed, so that requests without a valid link cost no hashing.
    let Some(found) = UsableLink::by(&gateway, &sent.link).await? else {
        return Ok(unusable(&gateway));
    };
    if found.is_closed(&gateway) {
        return Ok(sign_up::closed());
    }
    if let Some(problem) = name_problem(&sent.name).or_else(|| password_problem(&sent.password)) {
        let mut response = with_visit(&gateway, &headers, |visit| {
            form(visit, &found, &sent, Some(problem))
        });
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    }
    match found
        .redeem(&gateway, sent.name.trim(), sent.password)
        .await
    {
        Ok(Some(person)) => password_proven(&gateway, &headers, &person, "/portal").await,
        Ok(None) => Ok(unusable(&gateway)),
        Err(PortalError::Invalid(_)) => Ok(email_taken(&gateway, &found.link)),
        Err(error) => Err(error),
    }
}

/// A link that can be redeemed.
struct UsableLink {
    digest: Digest,
    link: Link,
    /// The name of the account that an invitation is for.
    account: Option<String>,
}

impl UsableLink {
    async fn by(gateway: &Gateway, secret: &str) -> Result<Option<Self>, PortalError> {
        let Some(digest) = MadeLink::digest(secret) else {
            return Ok(None);
        };
        let Some(link) = gateway.backoffice.link(&digest, timestamp::now()).await? else {
            return Ok(None);
        };
        let account = match &link.purpose {
            Purpose::Invitation { account_id, .. } => {
                let account = match gateway.ledger.account(account_id).await {
                    Err(LedgerError::NotFound { .. }) => return Ok(None),
                    found => found?,
                };
                if account.is_deleted() {
                    return Ok(None);
                }
                Some(account.name.unwrap_or(account.email))
            }
            Purpose::Proof { .. } | Purpose::Reset { .. } => None,
            // It has a page of its own (`settings/email.rs`).
            Purpose::Email { .. } => return Ok(None),
        };
        Ok(Some(Self {
            digest,
            link,
            account,
        }))
    }

    /// Whether the link is for a sign-up and sign-ups have been closed since.
    fn is_closed(&self, gateway: &Gateway) -> bool {
        matches!(self.link.purpose, Purpose::Proof { .. }) && !gateway.portal.sign_up_open
    }

    /// Whether the address has an account by now.
    async fn is_taken(&self, gateway: &Gateway) -> Result<bool, PortalError> {
        if matches!(self.link.purpose, Purpose::Reset { .. }) {
            return Ok(false);
        }
        let person = gateway.backoffice.person_by_email(&self.link.email).await?;
        Ok(person.is_some())
    }

    fn name(&self) -> &str {
        match &self.link.purpose {
            Purpose::Proof { name, .. } => name.as_deref().unwrap_or_default(),
            Purpose::Invitation { .. } | Purpose::Reset { .. } | Purpose::Email { .. } => "",
        }
    }

    /// Redeems the link with the new password and returns its person; `None` if it was redeemed meanwhile.
    async fn redeem(
        &self,
        gateway: &Gateway,
        name: &str,
        password: String,
    ) -> Result<Option<Person>, PortalError> {
        let (backoffice, now) = (&gateway.backoffice, timestamp::now());
        let hash = backoffice.passwords.hash(password).await;
        let hash = hash.map_err(|error| PortalError::Unavailable(error.to_string()))?;
        if matches!(self.link.purpose, Purpose::Reset { .. }) {
            return Ok(backoffice.reset_by_link(&self.digest, &hash, now).await?);
        }
        let name = Some(name).filter(|name| !name.is_empty());
        let joined = backoffice
            .join_by_link(&self.digest, name, &hash, now)
            .await;
        let person = match joined {
            Err(error @ BackofficeError::EmailTaken) => {
                return Err(PortalError::Invalid(error.to_string()));
            }
            joined => joined?,
        };
        if let (Some(person), Purpose::Proof { account_id, .. }) = (&person, &self.link.purpose) {
            let account = new_account(gateway, person);
            gateway.ledger.ensure_account(account_id, account).await?;
        }
        Ok(person)
    }

    fn title(&self) -> &'static str {
        match &self.link.purpose {
            Purpose::Invitation { .. } => "Accept invitation",
            Purpose::Proof { .. } => "Create account",
            Purpose::Reset { .. } | Purpose::Email { .. } => "Reset password",
        }
    }

    fn introduction(&self) -> Markup {
        let account = self.account.as_deref().unwrap_or_default();
        html! {
            @match &self.link.purpose {
                Purpose::Invitation { role, team_role, .. } => {
                    p {
                        "You are invited to the account " strong { (account) }
                        @if *team_role != TeamRole::Owner { ", with the role " (team_role.as_str()) }
                        @if *role == Role::Operator { ", and to be an operator of this gateway" }
                        ". Choose a password to sign in."
                    }
                },
                Purpose::Proof { .. } => { p { "Your email is confirmed. Choose a password to create the account." } },
                Purpose::Reset { .. } | Purpose::Email { .. } => {
                    p { "Choose a new password. You are signed out everywhere else." }
                },
            }
        }
    }
}

fn form(visit: &Token, found: &UsableLink, sent: &WelcomeForm, problem: Option<&str>) -> Response {
    let is_reset = matches!(found.link.purpose, Purpose::Reset { .. });
    let content = html! {
        h1 { (found.title()) }
        (found.introduction())
        (problem_notice(problem))
        form.stack method="post" action="/portal/welcome" {
            (token_field(visit))
            input type="hidden" name="link" value=(sent.link);
            label { "Email"
                input type="email" value=(found.link.email) readonly autocomplete="username";
            }
            @if !is_reset {
                label { "Name " span.muted { "(optional)" }
                    input type="text" name="name" value=(sent.name) maxlength=(MAX_NAME) autocomplete="name";
                }
            }
            label { "Password"
                input type="password" name="password" required minlength=(MIN_PASSWORD) autofocus
                    autocomplete="new-password" aria-describedby="password-hint";
                span.muted #password-hint { "At least " (MIN_PASSWORD) " characters." }
            }
            button.primary type="submit" { "Set password and sign in" }
        }
    };
    layout::plain(found.title(), &content).into_response()
}

/// Says that the address has an account. That is safe to show, because the link proves that the visitor owns
/// the address.
fn email_taken(gateway: &Gateway, link: &Link) -> Response {
    let content = html! {
        h1 { "You already have an account" }
        p { strong { (link.email) } " already has an account here, and an email can have only one. Nothing was changed." }
        @if matches!(link.purpose, Purpose::Invitation { .. }) {
            p { "To join the other account, ask for an invitation to another email, or leave your current account first (under Settings)." }
        }
        (next_steps(gateway))
    };
    failed(
        StatusCode::CONFLICT,
        "You already have an account",
        &content,
    )
}

fn unusable(gateway: &Gateway) -> Response {
    let content = html! {
        h1 { "This link cannot be used" }
        p { "It was used before, was replaced by a newer one, or has expired." }
        (next_steps(gateway))
    };
    failed(StatusCode::GONE, "This link cannot be used", &content)
}

fn next_steps(gateway: &Gateway) -> Markup {
    html! {
        p {
            "If you have a password, " a href="/portal/sign-in" { "sign in" } " with it. "
            @if gateway.mail.is_some() {
                "If you forgot it, " a href="/portal/forgotten" { "reset it" } ". "
            }
            "Otherwise ask the operator of this gateway for a new link."
        }
    }
}

fn failed(status: StatusCode, title: &str, content: &Markup) -> Response {
    let mut response = layout::plain(title, content).into_response();
    *response.status_mut() = status;
    response
}
