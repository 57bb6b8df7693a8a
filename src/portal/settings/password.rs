//! Changing one's password, or setting a first one.

use std::sync::Arc;

use axum::{Extension, extract::State, http::HeaderMap, response::Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::{PATH, Problem, Section, proof, refused};
use crate::{
    api::Peer,
    base::timestamp,
    gateway::Gateway,
    portal::{
        confirmation::Confirmation,
        error::PortalError,
        form::SignedForm,
        session::SignedIn,
        sign_in::start_session_confirming,
        sign_up::{MIN_PASSWORD, password_problem},
    },
};

pub(super) fn section(me: &SignedIn, problem: Option<Problem<'_>>) -> Markup {
    let has_password = me.person.password.is_some();
    html! {
        section #password {
            h2 { "Password" }
            (Problem::of(problem, Section::Password))
            form.stack method="post" action="/portal/settings/password" {
                (me.token_field())
                (proof::fields(me))
                label { "New password"
                    input type="password" name="new" required minlength=(MIN_PASSWORD) autocomplete="new-password" aria-describedby="new-hint";
                    span.muted #new-hint { "At least " (MIN_PASSWORD) " characters. You are signed out everywhere else." }
                }
                button.primary type="submit" { @if has_password { "Change password" } @else { "Set a password" } }
            }
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct NewPassword {
    #[serde(default)]
    new: String,
    #[serde(flatten)]
    proof: proof::Proof,
}

pub(super) async fn change(
    State(gateway): State<Arc<Gateway>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    SignedForm { me, form }: SignedForm<NewPassword>,
) -> Result<Response, PortalError> {
    if let Some(problem) = password_problem(&form.new) {
        return refused(&gateway, &me, Section::Password, problem).await;
    }
    if let Err(problem) = proof::check(&gateway, &me, peer, form.proof).await? {
        return refused(&gateway, &me, Section::Password, problem).await;
    }
    let backoffice = &gateway.backoffice;
    let hash = backoffice.passwords.hash(form.new).await;
    let hash = hash.map_err(|error| PortalError::Unavailable(error.to_string()))?;
    let digest = &me.session.digest;
    backoffice
        .set_password(&me.person.id, &hash, Some(digest), timestamp::now())
        .await?;
    // The current session is replaced by one with a new token.
    let done = Confirmation::new("Password changed. You are signed out everywhere else.");
    start_session_confirming(&gateway, &headers, &me.person, PATH, &done).await
}
