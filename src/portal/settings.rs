//! The settings page of a person: profile, password, two-factor authentication, sessions, connections, and the way to
//! delete the account. Changes of how the person signs in need a proof (`proof.rs`).

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use maud::{Markup, html};

mod delete;
mod email;
mod password;
mod profile;
pub(crate) mod proof;
mod qr;
mod sessions;
mod two_factor;

use super::{
    assets,
    error::PortalError,
    layout::{self, Page, Place},
    oidc,
    session::SignedIn,
    sign_in::problem_notice,
};
use crate::gateway::Gateway;

pub(crate) const PATH: &str = "/portal/settings";

pub(crate) fn router() -> Router<Arc<Gateway>> {
    Router::new()
        .route(PATH, get(show))
        .route("/portal/settings/profile", post(profile::rename))
        .route("/portal/settings/email", post(email::change))
        .route(
            "/portal/settings/email/confirm",
            get(email::confirm).post(email::confirmed),
        )
        .route("/portal/settings/password", post(password::change))
        .route(
            "/portal/settings/sessions",
            get(sessions::confirm).post(sessions::end_others),
        )
        .route("/portal/settings/two-factor", get(two_factor::show))
        .route("/portal/settings/two-factor/begin", post(two_factor::begin))
        .route(
            "/portal/settings/two-factor/confirm",
            post(two_factor::confirm),
        )
        .route("/portal/settings/two-factor/codes", post(two_factor::renew))
        .route(
            "/portal/settings/two-factor/off",
            post(two_factor::turn_off),
        )
        .route(
            "/portal/settings/delete",
            get(delete::confirm).post(delete::delete),
        )
}

/// A section of the page, in which a problem of its form is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Name,
    Email,
    Password,
    Connections,
}

/// What was wrong with a form.
#[derive(Clone, Copy)]
struct Problem<'a> {
    section: Section,
    text: &'a str,
}

impl Problem<'_> {
    /// The message, if it is one of this section.
    fn of(problem: Option<Problem<'_>>, section: Section) -> Markup {
        let text = problem.filter(|problem| problem.section == section);
        problem_notice(text.map(|problem| problem.text))
    }
}

async fn show(State(gateway): State<Arc<Gateway>>, me: SignedIn) -> Result<Response, PortalError> {
    Ok(page(&gateway, &me, None).await?.into_response())
}

async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    problem: Option<Problem<'_>>,
) -> Result<Page, PortalError> {
    let content = html! {
        h1 { "Settings" }
        (profile::section(me, problem))
        (password::section(me, problem))
        (two_factor::section(gateway, me).await?)
        (sessions::section(gateway, me).await?)
        (oidc::section(gateway, me, &Problem::of(problem, Section::Connections)).await?)
        (delete::section(me))
    };
    Ok(framed(me, "Settings", &content))
}

/// A page of the settings, with their stylesheet.
fn framed(me: &SignedIn, title: &str, content: &Markup) -> Page {
    let head = html! { link rel="stylesheet" href=(assets::path("settings.css")); };
    layout::page_with(me, Place::Settings, title, &head, content)
}

/// The settings page with an error message in a section, status 400.
pub(crate) async fn refused(
    gateway: &Gateway,
    me: &SignedIn,
    section: Section,
    text: &str,
) -> Result<Response, PortalError> {
    let page = page(gateway, me, Some(Problem { section, text })).await?;
    Ok((StatusCode::BAD_REQUEST, page).into_response())
}
