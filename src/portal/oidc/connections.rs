//! The settings for connecting an issuer's identity to an existing person, as another way to sign in.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    attempt::{Attempt, Purpose},
    authorization_url, issuer, issuer_redirect_page, with_attempt_cookie,
};
use crate::{
    api::Peer,
    gateway::Gateway,
    portal::{
        error::PortalError,
        form::{EmptyForm, SignedForm},
        layout,
        session::SignedIn,
        settings,
    },
};

/// The section of the settings page; empty without an issuer.
pub(crate) async fn section(gateway: &Gateway, me: &SignedIn) -> Result<Markup, PortalError> {
    let Some(issuer) = &gateway.oidc else {
        return Ok(html! {});
    };
    let name = issuer.name();
    let connected = gateway.backoffice.is_connected(&me.person.id, issuer.id());
    let connected = connected.await?;
    let is_only_way = me.person.password.is_none();
    Ok(html! {
        h2 { "Sign in with " (name) }
        @if connected && is_only_way {
            p { "Connected. It is your only way in: set a password before you disconnect it." }
        } @else if connected {
            p { "Connected. You can sign in with " (name) " or with your password." }
            form method="post" action="/portal/oidc/disconnect" {
                (me.token_field())
                button type="submit" { "Disconnect " (name) }
            }
        } @else {
            p { "Connect it to sign in without your password." }
            form.stack method="post" action="/portal/oidc/connect" {
                (me.token_field())
                @if !is_only_way {
                    label { "Password"
                        input type="password" name="present" required autocomplete="current-password";
                    }
                }
                button type="submit" { "Connect " (name) }
            }
        }
    })
}

#[derive(Deserialize)]
pub(crate) struct ConnectForm {
    /// The current password; empty if the person has none.
    #[serde(default)]
    present: String,
}

/// Starts connecting an identity. It outlasts the session in which it was added, so the password is required as
/// well.
pub(crate) async fn connect(
    State(gateway): State<Arc<Gateway>>,
    Extension(Peer(peer)): Extension<Peer>,
    SignedForm { me, form }: SignedForm<ConnectForm>,
) -> Result<Response, PortalError> {
    if !settings::knows_password(&gateway, &me, peer, form.present).await? {
        return settings::refused(&gateway, &me, settings::WRONG).await;
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

/// Disconnects the identity. If it is the only way to sign in, nothing is changed, and the page says why.
pub(crate) async fn disconnect(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form: _ }: SignedForm<EmptyForm>,
) -> Result<Response, PortalError> {
    let issuer = issuer(&gateway)?.id();
    gateway.backoffice.disconnect(&me.person.id, issuer).await?;
    Ok(layout::redirect("/portal/settings"))
}
