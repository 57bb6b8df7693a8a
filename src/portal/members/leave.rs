//! Leaving the account, which every member may do unless they are its last owner.

use std::sync::Arc;

use axum::{extract::State, response::Response};

use super::{PATH, actions, refused};
use crate::{
    gateway::Gateway,
    portal::{
        error::PortalError,
        form::{EmptyForm, SignedForm},
        layout::{self, Page, Place},
        question::Question,
        session::SignedIn,
        sign_in,
    },
};

pub(crate) async fn confirm(me: SignedIn) -> Result<Page, PortalError> {
    let question = Question {
        title: "Leave this account?",
        consequences: "You are signed out everywhere and cannot sign in any more, and the keys that you made are permanently deleted. To come back you need a new invitation.",
        path: "/portal/members/leave",
        fields: &[],
        yes: "Leave account",
        no: ("Cancel", PATH),
    };
    let content = question.shown(&me.token_field());
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
        Err(error) => refused(&gateway, &me, error.into()).await,
    }
}
