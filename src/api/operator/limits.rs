//! Rate limits: for all requests, for a model, for an account, or for both together.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};

use super::{
    accounts::List,
    body::{JsonBody, set_or_clear},
    error::OperatorError,
};
use crate::{
    api::Json,
    gateway::{
        Gateway,
        actions::{LimitChange, OperatorActions},
    },
    ledger::{Edit, LimitRule},
};

#[derive(Serialize)]
struct LimitObject {
    object: &'static str,
    account: Option<String>,
    model: Option<String>,
    rpm: Option<u32>,
    tpm: Option<u32>,
}

impl From<LimitRule> for LimitObject {
    fn from(rule: LimitRule) -> Self {
        Self {
            object: "limit",
            account: rule.account,
            model: rule.model,
            rpm: rule.requests,
            tpm: rule.tokens,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    account: Option<String>,
    model: Option<String>,
    /// If the field is absent, the ceiling stays; `null` removes it.
    #[serde(default, deserialize_with = "set_or_clear")]
    rpm: Edit<u32>,
    #[serde(default, deserialize_with = "set_or_clear")]
    tpm: Edit<u32>,
}

pub(crate) async fn change(
    State(gateway): State<Arc<Gateway>>,
    JsonBody(change): JsonBody<Change>,
) -> Result<Response, OperatorError> {
    let change = LimitChange {
        account: change.account,
        model: change.model,
        requests: change.rpm,
        tokens: change.tpm,
    };
    let rule = OperatorActions::by_token(&gateway)
        .change_limit(change)
        .await?;
    Ok(Json(LimitObject::from(rule)).into_response())
}

pub(crate) async fn list(State(gateway): State<Arc<Gateway>>) -> Result<Response, OperatorError> {
    gateway.ledger.refresh().await?;
    let rules = gateway.ledger.limits().into_iter();
    Ok(Json(List::new(rules.map(LimitObject::from).collect())).into_response())
}
