//! The browsers in which the person is signed in.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};

use super::{PATH, framed};
use crate::{
    backoffice::Session,
    base::timestamp,
    gateway::Gateway,
    portal::{
        confirmation::Confirmation,
        error::PortalError,
        form::{EmptyForm, SignedForm},
        formatting::moment,
        layout::Page,
        question::Question,
        session::SignedIn,
        table::scrolled,
        user_agent,
    },
};

const SESSIONS: &str = "/portal/settings/sessions";

pub(super) async fn section(gateway: &Gateway, me: &SignedIn) -> Result<Markup, PortalError> {
    let (backoffice, now) = (&gateway.backoffice, timestamp::now());
    let sessions = backoffice.sessions_of(&me.person.id, now).await?;
    Ok(html! {
        section #sessions {
            h2 { "Sessions" }
            (table(me, &sessions))
            @if sessions.len() > 1 { a.button href=(SESSIONS) { "Sign out everywhere else" } }
        }
    })
}

fn table(me: &SignedIn, sessions: &[Session]) -> Markup {
    html! {
        (scrolled("Your sessions", &html! {
            table {
                thead { tr {
                    th scope="col" { "Browser" } th scope="col" { "Signed in" } th scope="col" { "Expires" }
                } }
                tbody {
                    @for session in sessions {
                        tr {
                            td data-label="Browser" {
                                span title=(session.agent) { (user_agent::browser_name(&session.agent)) }
                                @if session.digest == me.session.digest { " " span.badge.good { "this one" } }
                            }
                            td data-label="Signed in" { (moment(session.began_at)) }
                            td data-label="Expires" { (moment(session.expires_at)) }
                        }
                    }
                }
            }
        }))
    }
}

/// Asks before other browsers are signed out, where something may be half written.
pub(super) async fn confirm(me: SignedIn) -> Page {
    let question = Question {
        title: "Sign out everywhere else?",
        consequences: "All other browsers in which you are signed in have to sign in again. What is typed there and not yet saved is lost. This browser stays signed in.",
        path: SESSIONS,
        fields: &[],
        yes: "Sign out everywhere else",
        no: ("Cancel", PATH),
    };
    framed(
        &me,
        "Sign out everywhere else",
        &question.shown(&me.token_field()),
    )
}

pub(super) async fn end_others(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form: _ }: SignedForm<EmptyForm>,
) -> Result<Response, PortalError> {
    let digest = &me.session.digest;
    gateway
        .backoffice
        .end_sessions_of(&me.person.id, Some(digest))
        .await?;
    let done = Confirmation::new("You are signed out everywhere else.");
    Ok(me.redirect(PATH, &done))
}
