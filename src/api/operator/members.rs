//! The members of an account, each with a role in it: list, change the role, remove.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};

use super::{accounts::List, body::JsonBody, error::OperatorError, path::Path};
use crate::{
    api::Json,
    backoffice::{Person, TeamRole},
    base::timestamp,
    gateway::{Gateway, actions::OperatorActions},
};

#[derive(Serialize)]
struct MemberObject<'a> {
    id: &'a str,
    object: &'static str,
    account_id: &'a str,
    email: &'a str,
    name: Option<&'a str>,
    role: &'static str,
    created_at: String,
}

impl<'a> MemberObject<'a> {
    fn new(person: &'a Person) -> Self {
        Self {
            id: &person.id,
            object: "member",
            account_id: &person.account_id,
            email: &person.email,
            name: person.name.as_deref(),
            role: person.team_role.as_str(),
            created_at: timestamp::shown(person.created_at),
        }
    }
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    Path(account_id): Path<String>,
) -> Result<Response, OperatorError> {
    gateway.ledger.account(&account_id).await?;
    let people = gateway.backoffice.people_of(&account_id).await?;
    let members = people.iter().map(MemberObject::new);
    Ok(Json(List::new(members.collect())).into_response())
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
    let unknown = || {
        let message = "`role` must be \"owner\", \"billing\", \"developer\" or \"viewer\".";
        OperatorError::invalid("role", message)
    };
    let role = TeamRole::parse(&role).ok_or_else(unknown)?;
    let actions = OperatorActions::by_token(&gateway);
    let person = actions.set_team_role(id, role).await?;
    Ok(Json(MemberObject::new(&person)).into_response())
}

pub(crate) async fn remove(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Response, OperatorError> {
    let actions = OperatorActions::by_token(&gateway);
    let person = actions.remove_member(id).await?;
    Ok(Json(MemberObject::new(&person)).into_response())
}
