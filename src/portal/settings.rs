//! The settings page: the person's password, connected issuer and sessions.

use std::{net::IpAddr, sync::Arc};

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    error::PortalError,
    form::{EmptyForm, SignedForm},
    formatting::moment,
    layout::{self, Place},
    oidc,
    session::SignedIn,
    sign_in::{problem_notice, start_session},
    sign_up::{MIN_PASSWORD, password_problem},
    user_agent,
};
use crate::{
    api::Peer,
    backoffice::{Attempt, Session},
    base::timestamp,
    gateway::Gateway,
};

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
) -> Result<Response, PortalError> {
    page(&gateway, &me, None).await
}

async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    problem: Option<&str>,
) -> Result<Response, PortalError> {
    let sessions = gateway
        .backoffice
        .sessions_of(&me.person.id, timestamp::now())
        .await?;
    let has_password = me.person.password.is_some();
    let content = html! {
        h1 { "Settings" }
        dl {
            dt { "E-mail" } dd { (me.person.email) }
            dt { "Account" } dd { code { (me.account.id) } }
            dt { "Since" } dd { (moment(me.person.created_at)) }
        }
        h2 { "Password" }
        (problem_notice(problem))
        form.stack method="post" action="/portal/settings/password" {
            (me.token_field())
            @if has_password {
                label { "Present password"
                    input type="password" name="present" required autocomplete="current-password";
                }
            }
            label { "New password"
                input type="password" name="new" required minlength=(MIN_PASSWORD) autocomplete="new-password" aria-describedby="new-hint";
                span.muted #new-hint { "At least " (MIN_PASSWORD) " characters. Other sessions are signed out." }
            }
            button.primary type="submit" { @if has_password { "Change password" } @else { "Set a password" } }
        }
        (oidc::section(gateway, me).await?)
        h2 { "Sessions" }
        (table(me, &sessions))
        form method="post" action="/portal/settings/sessions" {
            (me.token_field())
            button type="submit" disabled[sessions.len() < 2] { "Sign out everywhere else" }
        }
    };
    Ok(layout::page(me, Place::Settings, "Settings", &content).into_response())
}

fn table(me: &SignedIn, sessions: &[Session]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Your sessions" {
            table {
                thead { tr {
                    th scope="col" { "Browser" } th scope="col" { "Signed in" } th scope="col" { "Until" }
                } }
                tbody {
                    @for session in sessions {
                        tr {
                            td {
                                span title=(session.agent) { (user_agent::browser_name(&session.agent)) }
                                @if session.digest == me.session.digest { " " span.badge.good { "this one" } }
                            }
                            td { (moment(session.began_at)) }
                            td { (moment(session.expires_at)) }
                        }
                    }
                }
            }
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct NewPassword {
    /// The current password; empty if the person has none.
    #[serde(default)]
    present: String,
    new: String,
}

pub(crate) async fn change_password(
    State(gateway): State<Arc<Gateway>>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
    SignedForm { me, form }: SignedForm<NewPassword>,
) -> Result<Response, PortalError> {
    if let Some(problem) = password_problem(&form.new) {
        return refused(&gateway, &me, problem).await;
    }
    if !knows_password(&gateway, &me, peer, form.present).await? {
        return refused(&gateway, &me, WRONG).await;
    }
    let passwords = &gateway.backoffice.passwords;
    let hash = passwords.hash(form.new).await;
    let hash = hash.map_err(|error| PortalError::Unavailable(error.to_string()))?;
    let digest = &me.session.digest;
    gateway
        .backoffice
        .set_password(&me.person.id, &hash, Some(digest), timestamp::now())
        .await?;
    // The current session is replaced by one with a new token.
    start_session(&gateway, &headers, &me.person, "/portal/settings").await
}

pub(crate) const WRONG: &str = "The present password is not right.";

/// The settings page with an error message, status 400.
pub(crate) async fn refused(
    gateway: &Gateway,
    me: &SignedIn,
    problem: &str,
) -> Result<Response, PortalError> {
    let mut response = page(gateway, me, Some(problem)).await?;
    *response.status_mut() = StatusCode::BAD_REQUEST;
    Ok(response)
}

/// Whether `present` is the person's password. True if the person has none.
pub(crate) async fn knows_password(
    gateway: &Gateway,
    me: &SignedIn,
    peer: IpAddr,
    present: String,
) -> Result<bool, PortalError> {
    let kept = me.person.password.clone();
    if kept.is_none() {
        return Ok(true);
    }
    // Attempts are throttled, so that an unattended session cannot be used to guess the password.
    let throttle = &gateway.portal.throttle;
    let counted = throttle
        .attempt(&Attempt::confirmation(&me.person.id, peer))
        .map_err(|seconds| PortalError::TooMany { seconds })?;
    let right = gateway.backoffice.passwords.verify(present, kept).await;
    if right {
        throttle.succeeded(&counted);
    }
    Ok(right)
}

pub(crate) async fn end_sessions(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form: _ }: SignedForm<EmptyForm>,
) -> Result<Response, PortalError> {
    let digest = &me.session.digest;
    gateway
        .backoffice
        .end_sessions_of(&me.person.id, Some(digest))
        .await?;
    Ok(layout::redirect("/portal/settings"))
}
