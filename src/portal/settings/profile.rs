//! Name and email address.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::{PATH, Problem, Section, email, refused};
use crate::{
    gateway::{Gateway, actions::OperatorActions},
    portal::{
        confirmation::Confirmation,
        error::PortalError,
        form::SignedForm,
        formatting::moment,
        session::SignedIn,
        sign_up::{MAX_NAME, name_problem},
    },
};

pub(super) fn section(me: &SignedIn, problem: Option<Problem<'_>>) -> Markup {
    html! {
        section #profile {
            h2 { "Profile" }
            dl {
                dt { "Email" } dd { (me.person.email) }
                dt { "Role" } dd { (me.person.team_role.as_str()) }
                dt { "Account" } dd { code { (me.account.id) } }
                dt { "Since" } dd { (moment(me.person.created_at)) }
            }
            (Problem::of(problem, Section::Name))
            form.inline method="post" action="/portal/settings/profile" {
                (me.token_field())
                label { "Name"
                    input type="text" name="name" value=(me.person.name.as_deref().unwrap_or_default())
                        maxlength=(MAX_NAME) autocomplete="name";
                }
                button type="submit" { "Save" }
            }
            (email::form(me, problem))
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct ProfileForm {
    #[serde(default)]
    name: String,
}

pub(super) async fn rename(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form }: SignedForm<ProfileForm>,
) -> Result<Response, PortalError> {
    if let Some(problem) = name_problem(&form.name) {
        return refused(&gateway, &me, Section::Name, problem).await;
    }
    let name = Some(form.name.trim()).filter(|name| !name.is_empty());
    let before = me.person.name.clone().unwrap_or_default();
    OperatorActions::by(&gateway, &me.person.email)
        .rename_person(me.person.clone(), name.map(str::to_owned))
        .await?;
    let done = Confirmation::new("Name saved.");
    let done = done.undone_by("/portal/settings/profile", &[("name", &before)]);
    Ok(me.redirect(PATH, &done))
}
