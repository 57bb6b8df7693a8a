//! API keys: create, list, disable, enable and delete.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};

use super::{accounts::List, body::JsonBody, error::OperatorError, path::Path};
use crate::{
    api::Json,
    base::timestamp,
    gateway::{Gateway, actions::OperatorActions},
    ledger::{Key, KeyState},
};

#[derive(Serialize)]
struct KeyObject<'a> {
    id: &'a str,
    object: &'static str,
    account_id: &'a str,
    name: &'a str,
    prefix: &'a str,
    state: &'static str,
    created_at: String,
    /// The full key, only in the response that creates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

impl<'a> KeyObject<'a> {
    fn new(key: &'a Key) -> Self {
        Self {
            id: &key.id,
            object: "key",
            account_id: &key.account_id,
            name: &key.name,
            prefix: &key.prefix,
            state: key.state.as_str(),
            created_at: timestamp::shown(key.created_at),
            key: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Create {
    #[serde(default)]
    name: String,
}

pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    Path(account_id): Path<String>,
    JsonBody(Create { name }): JsonBody<Create>,
) -> Result<Response, OperatorError> {
    let (key, secret) = OperatorActions::by_token(&gateway)
        .create_key(account_id, name)
        .await?;
    let shown = KeyObject {
        key: Some(secret.reveal()),
        ..KeyObject::new(&key)
    };
    Ok(Json(shown).into_response())
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    Path(account_id): Path<String>,
) -> Result<Response, OperatorError> {
    let keys = gateway.ledger.keys(&account_id).await?;
    Ok(Json(List::new(keys.iter().map(KeyObject::new).collect())).into_response())
}

pub(crate) async fn disable(
    gateway: State<Arc<Gateway>>,
    id: Path<String>,
) -> Result<Response, OperatorError> {
    set_state(gateway, id, KeyState::Disabled).await
}

pub(crate) async fn enable(
    gateway: State<Arc<Gateway>>,
    id: Path<String>,
) -> Result<Response, OperatorError> {
    set_state(gateway, id, KeyState::Active).await
}

pub(crate) async fn delete(
    gateway: State<Arc<Gateway>>,
    id: Path<String>,
) -> Result<Response, OperatorError> {
    set_state(gateway, id, KeyState::Deleted).await
}

async fn set_state(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    state: KeyState,
) -> Result<Response, OperatorError> {
    let key = OperatorActions::by_token(&gateway)
        .set_key_state(id, state)
        .await?;
    Ok(Json(KeyObject::new(&key)).into_response())
}
