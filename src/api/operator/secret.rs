//! `POST /operator/secret/rotate`: replaces the secret that signs the portal's cookies. It is never shown.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde_json::json;

use super::error::OperatorError;
use crate::{
    api::Json,
    base::timestamp,
    gateway::{Gateway, actions::OperatorActions},
};

pub(crate) async fn rotate(State(gateway): State<Arc<Gateway>>) -> Result<Response, OperatorError> {
    let actions = OperatorActions::by_token(&gateway);
    let rotated_at = timestamp::shown(actions.rotate_cookie_secret().await?);
    let object = json!({ "object": "secret", "name": "cookies", "rotated_at": rotated_at });
    Ok(Json(object).into_response())
}
