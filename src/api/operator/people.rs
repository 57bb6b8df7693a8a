//! People who sign in to the portal: list, invite, change role, reset password and remove.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};

use super::{accounts::List, body::JsonBody, error::OperatorError, path::Path};
use crate::{
    api::Json,
    backoffice::{Person, Purpose, Role, TeamRole},
    base::timestamp,
    gateway::{
        Gateway,
        actions::{OneTimeLink, OperatorActions, Roles},
    },
};

#[derive(Serialize)]
struct PersonObject<'a> {
    id: &'a str,
    object: &'static str,
    account_id: &'a str,
    email: &'a str,
    name: Option<&'a str>,
    role: &'static str,
    team_role: &'static str,
    /// Whether two-factor authentication is on.
    second_factor: bool,
    created_at: String,
}

impl<'a> PersonObject<'a> {
    fn new(person: &'a Person) -> Self {
        Self {
            id: &person.id,
            object: "person",
            account_id: &person.account_id,
            email: &person.email,
            name: person.name.as_deref(),
            role: person.role.as_str(),
            team_role: person.team_role.as_str(),
            second_factor: person.second_factor_at.is_some(),
            created_at: timestamp::shown(person.created_at),
        }
    }
}

#[derive(Serialize)]
struct LinkObject<'a> {
    object: &'static str,
    email: &'a str,
    /// The link's URL, only in the response that creates it.
    link: &'a str,
    expires_at: String,
    mailed: bool,
}

impl<'a> LinkObject<'a> {
    fn new(link: &'a OneTimeLink) -> Self {
        Self {
            object: "link",
            email: &link.email,
            link: link.url.reveal(),
            expires_at: timestamp::shown(link.expires_at),
            mailed: link.mailed,
        }
    }
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    Path(account_id): Path<String>,
) -> Result<Response, OperatorError> {
    gateway.ledger.account(&account_id).await?;
    let people = gateway.backoffice.people_of(&account_id).await?;
    let people = people.iter().map(PersonObject::new);
    Ok(Json(List::new(people.collect())).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Invite {
    email: String,
    role: Option<String>,
}

pub(crate) async fn invite(
    State(gateway): State<Arc<Gateway>>,
    Path(account_id): Path<String>,
    JsonBody(Invite { email, role }): JsonBody<Invite>,
) -> Result<Response, OperatorError> {
    let roles = match role {
        Some(role) => Roles::parse(&role).ok_or_else(no_such_role)?,
        None => Roles::of_member(TeamRole::Owner),
    };
    let actions = OperatorActions::by_token(&gateway);
    let link = actions.invite(account_id, &email, roles).await?;
    Ok(Json(LinkObject::new(&link)).into_response())
}

#[derive(Serialize)]
struct InvitationObject<'a> {
    object: &'static str,
    email: &'a str,
    role: &'static str,
    team_role: &'static str,
    expires_at: String,
}

/// Lists the invitations that have not been used and have not expired.
pub(crate) async fn invitations(
    State(gateway): State<Arc<Gateway>>,
    Path(account_id): Path<String>,
) -> Result<Response, OperatorError> {
    gateway.ledger.account(&account_id).await?;
    let now = timestamp::now();
    let open = gateway.backoffice.invitations_of(&account_id, now).await?;
    let open = open.iter().filter_map(|link| match &link.purpose {
        Purpose::Invitation {
            role, team_role, ..
        } => Some(InvitationObject {
            object: "invitation",
            email: &link.email,
            role: role.as_str(),
            team_role: team_role.as_str(),
            expires_at: timestamp::shown(link.expires_at),
        }),
        Purpose::Proof { .. } | Purpose::Reset { .. } | Purpose::Email { .. } => None,
    });
    Ok(Json(List::new(open.collect())).into_response())
}

pub(crate) async fn withdraw(
    State(gateway): State<Arc<Gateway>>,
    Path((account_id, email)): Path<(String, String)>,
) -> Result<Response, OperatorError> {
    let actions = OperatorActions::by_token(&gateway);
    actions
        .withdraw_invitation(account_id, email.clone())
        .await?;
    let object = serde_json::json!({ "object": "invitation", "email": email, "withdrawn": true });
    Ok(Json(object).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    role: String,
}

pub(crate) async fn change(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    JsonBody(Change { role }): JsonBody<Change>,
) -> Result<Response, OperatorError> {
    let role = read_role(&role)?;
    let person = OperatorActions::by_token(&gateway)
        .set_role(id, role)
        .await?;
    Ok(Json(PersonObject::new(&person)).into_response())
}

pub(crate) async fn remove(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Response, OperatorError> {
    let person = OperatorActions::by_token(&gateway)
        .remove_person(id)
        .await?;
    Ok(Json(PersonObject::new(&person)).into_response())
}

pub(crate) async fn reset(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Response, OperatorError> {
    let link = OperatorActions::by_token(&gateway)
        .reset_password(id)
        .await?;
    Ok(Json(LinkObject::new(&link)).into_response())
}

/// Turns off the two-factor authentication of a person who has lost it.
pub(crate) async fn reset_second_factor(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Response, OperatorError> {
    let person = OperatorActions::by_token(&gateway)
        .reset_second_factor(id)
        .await?;
    Ok(Json(PersonObject::new(&person)).into_response())
}

fn no_such_role() -> OperatorError {
    let message =
        "`role` must be \"owner\", \"billing\", \"developer\", \"viewer\" or \"operator\".";
    OperatorError::invalid("role", message)
}

fn read_role(text: &str) -> Result<Role, OperatorError> {
    Role::parse(text).ok_or_else(|| {
        OperatorError::invalid("role", "`role` must be \"customer\" or \"operator\".")
    })
}
