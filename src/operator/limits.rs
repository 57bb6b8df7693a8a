//! Ceilings a minute: for all, for a model, for an account, for both together.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Deserializer, Serialize};

use super::{accounts::List, body::JsonBody, error::OperatorError};
use crate::{
    gateway::Gateway,
    http::Json,
    ledger::{CeilingChange, LimitRule},
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
pub struct Change {
    account: Option<String>,
    model: Option<String>,
    /// Absent leaves a ceiling as it is; `null` takes it away.
    #[serde(default, deserialize_with = "said")]
    rpm: CeilingChange,
    #[serde(default, deserialize_with = "said")]
    tpm: CeilingChange,
}

fn said<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CeilingChange, D::Error> {
    let said = Option::deserialize(deserializer)?;
    Ok(said.map_or(CeilingChange::Clear, CeilingChange::Set))
}

pub async fn change(
    State(gateway): State<Arc<Gateway>>,
    JsonBody(change): JsonBody<Change>,
) -> Result<Response, OperatorError> {
    for (name, value) in [("rpm", change.rpm), ("tpm", change.tpm)] {
        if value == CeilingChange::Set(0) {
            let message = format!("`{name}` must be at least 1; 0 would refuse every request.");
            return Err(OperatorError::invalid(name, message));
        }
    }
    if let Some(account) = &change.account {
        gateway.ledger.account(account).await?;
    }
    if let Some(model) = change
        .model
        .as_ref()
        .filter(|id| gateway.routes().catalog.find(id).is_none())
    {
        return Err(OperatorError::NoSuchModel(model.clone()));
    }
    let rule = gateway
        .ledger
        .set_limit(change.account, change.model, change.rpm, change.tpm)
        .await?;
    Ok(Json(LimitObject::from(rule)).into_response())
}

pub async fn list(State(gateway): State<Arc<Gateway>>) -> Result<Response, OperatorError> {
    gateway.ledger.refresh().await?;
    let rules = gateway.ledger.limits().into_iter();
    Ok(Json(List::new(rules.map(LimitObject::from).collect())).into_response())
}
