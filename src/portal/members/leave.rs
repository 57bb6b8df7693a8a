//! Leaving the account, which every member may do unless they are its last owner.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::html;

use super::{PATH, actions, sent_back};
use crate::{
    gateway::Gateway,
    portal::{
        error::PortalError,
        form::{EmptyForm, SignedForm},
        layout::{self, Page, Place},
        session::SignedIn,
        sign_in,
    },
};

pub(crate) async fn confirm(me: SignedIn) -> Result<Page, PortalError> {
    let content = html! {
        h1 { "Leave this account?" }
        p { "You are signed out everywhere and cannot sign in any more, and the keys that you made are deleted for good. To come back you need a new invitation." }
        form.inline method="post" action="/portal/members/leave" {
            (me.token_field())
            button.bad type="submit" { "Leave" }
            a.button href=(PATH) { "Stay" }
        }
    };
    Ok(layout::page(
        &me,
        Place::Members,
        "Leave this account",
        &content,
    ))
}

pub(crate) async fn leave(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form: _ }: SignedForm<EmptyForm>,
) -> Result<Response, PortalError> {
    let id = me.person.id.clone();
    match actions(&gateway, &me).remove_member(id).await {
        Ok(_) => sign_in::sign_out_to(&gateway, &me.session, "/portal/sign-in").await,
        Err(error) => sent_back(&gateway, &me, Err(error.into())).await,
    }
}
