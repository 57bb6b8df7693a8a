//! The settings for connecting an issuer's identity to an existing person, as another way to sign in.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};

use super::{
    attempt::{Attempt, Purpose},
    authorization_url, issuer, issuer_redirect_page, with_attempt_cookie,
};
use crate::{
    api::Peer,
    gateway::Gateway,
    portal::{
        confirmation::Confirmation,
        error::PortalError,
        form::{EmptyForm, SignedForm},
        layout::{self, Place},
        question::Question,
        session::SignedIn,
        settings::{
            self, Section,
            proof::{self, Proof},
        },
    },
};

const DISCONNECT: &str = "/portal/oidc/disconnect";

/// The section of the settings page, with the problem of its form; empty without an issuer.
pub(crate) async fn section(
    gateway: &Gateway,
    me: &SignedIn,
    problem: &Markup,
) -> Result<Markup, PortalError> {
    let Some(issuer) = &gateway.oidc else {
        return Ok(html! {});
    };
    let name = issuer.name();
    let connected = gateway.backoffice.is_connected(&me.person.id, issuer.id());
    let connected = connected.await?;
    let is_only_way = me.person.password.is_none();
    Ok(html! {
        section #connections {
            h2 { "Connections" }
            (problem)
            @if connected && is_only_way {
                p { (name) " is connected. It is your only way to sign in: set a password before you disconnect it." }
            } @else if connected {
                p { (name) " is connected. You can sign in with it or with your password." }
                @if me.person.second_factor_at.is_some() {
                    p.muted { "When you sign in with " (name) ", no code is asked for here: its own two-factor authentication counts." }
                }
                a.button href=(DISCONNECT) { "Disconnect " (name) }
            } @else {
                p { "Connect " (name) " to sign in without your password." }
                form.stack method="post" action="/portal/oidc/connect" {
                    (me.token_field())
                    (proof::fields(me))
                    button type="submit" { "Connect " (name) }
                }
            }
        }
    })
}

/// Starts connecting an identity. It outlasts the session in which it was added, so a proof is required as well.
pub(crate) async fn connect(
    State(gateway): State<Arc<Gateway>>,
    Extension(peer): Extension<Peer>,
    SignedForm { me, form }: SignedForm<Proof>,
) -> Result<Response, PortalError> {
    if let Err(problem) = proof::check(&gateway, &me, peer, form).await? {
        return settings::refused(&gateway, &me, Section::Connections, problem).await;
    }
    let session = me.session.digest;
    let attempt = Attempt::new("/portal/settings".into(), Purpose::Connect { session });
    let name = issuer(&gateway)?.name();
    Ok(match authorization_url(&gateway, &attempt).await? {
        Ok(url) => {
            with_attempt_cookie(&gateway, &attempt, issuer_redirect_page(&url, name)).await?
        }
        Err(refusal) => refusal.page(name),
    })
}

/// Asks before the identity is disconnected; to connect it again takes a new sign-in there.
pub(crate) async fn confirm_disconnect(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
) -> Result<Response, PortalError> {
    let name = issuer(&gateway)?.name();
    if me.person.password.is_none() {
        return Ok(layout::redirect(settings::PATH));
    }
    let title = format!("Disconnect {name}?");
    let question = Question {
        title: &title,
        consequences: &format!(
            "You can no longer sign in with {name}, only with your password. To connect it again, you need your password and a sign-in at {name}."
        ),
        path: DISCONNECT,
        fields: &[],
        yes: &format!("Disconnect {name}"),
        no: ("Cancel", settings::PATH),
    };
    let content = question.shown(&me.token_field());
    Ok(layout::page(&me, Place::Settings, &title, &content).into_response())
}

/// Disconnects the identity. If it is the only way to sign in, nothing is changed, and the page says why.
pub(crate) async fn disconnect(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form: _ }: SignedForm<EmptyForm>,
) -> Result<Response, PortalError> {
    let issuer = issuer(&gateway)?;
    let disconnecting = gateway.backoffice.disconnect(&me.person.id, issuer.id());
    disconnecting.await?;
    if me.person.password.is_none() {
        return Ok(layout::redirect("/portal/settings"));
    }
    let done = Confirmation::new(format!("{} disconnected.", issuer.name()));
    Ok(me.redirect("/portal/settings", &done))
}
