//! `GET /v1/key` (§4.12): what a key may know about itself.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::Serialize;

use crate::{
    api::{Json, budget::BudgetFigures, extract::Authenticated},
    base::{keys::KeyDigest, timestamp},
    gateway::Gateway,
    ledger::{DEFAULT_PROJECT, Key},
    wire::error::GatewayError,
};

#[derive(Serialize)]
struct KeyObject<'a> {
    object: &'static str,
    id: &'a str,
    name: &'a str,
    prefix: &'a str,
    project: ProjectObject<'a>,
    created_at: String,
    expires_at: Option<String>,
    /// `null`: all models that the account may call.
    models: Option<&'a [String]>,
    limits: Limits,
    /// Those above its calls.
    budgets: Vec<BudgetFigures>,
}

#[derive(Serialize)]
struct ProjectObject<'a> {
    id: &'a str,
    name: &'a str,
}

/// The key's own ceilings; `null` where it has none beside those of its account.
#[derive(Serialize)]
struct Limits {
    rpm: Option<u32>,
    tpm: Option<u32>,
}

/// What differs between the two secrets of a key that was rotated.
struct Presented<'a> {
    prefix: &'a str,
    expires_at: Option<i64>,
}

impl<'a> Presented<'a> {
    fn of(key: &'a Key, secret: KeyDigest) -> Self {
        let expires_at = key.terms.expires_at;
        let previous = key.previous.as_ref();
        match previous.filter(|previous| previous.digest == secret) {
            None => Self {
                prefix: &key.prefix,
                expires_at,
            },
            Some(previous) => Self {
                prefix: &previous.prefix,
                expires_at: Some(
                    expires_at.map_or(previous.valid_until, |at| at.min(previous.valid_until)),
                ),
            },
        }
    }
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    Authenticated(caller): Authenticated,
) -> Result<Response, GatewayError> {
    let found = gateway.ledger.key(&caller.payer.key_id).await;
    let key = found.map_err(|_| GatewayError::CreditUnavailable)?;
    let project = project_name(&gateway, &key).await?;
    let (payer, terms) = (&key.payer, &key.terms);
    let budgets = gateway.ledger.budgets_above(&caller).await;
    let budgets = budgets.map_err(|_| GatewayError::CreditUnavailable)?;
    let presented = Presented::of(&key, caller.digest);
    let shown = KeyObject {
        object: "key",
        id: &key.id,
        name: &key.name,
        prefix: presented.prefix,
        project: ProjectObject {
            id: payer.project(),
            name: &project,
        },
        created_at: timestamp::shown(key.created_at),
        expires_at: presented.expires_at.map(timestamp::shown),
        models: terms.models.as_deref(),
        limits: Limits {
            rpm: terms.rpm,
            tpm: terms.tpm,
        },
        budgets: budgets.iter().map(BudgetFigures::from).collect(),
    };
    Ok(Json(shown).into_response())
}

async fn project_name(gateway: &Gateway, key: &Key) -> Result<String, GatewayError> {
    let id = key.payer.project();
    if id == DEFAULT_PROJECT {
        return Ok("Default".into());
    }
    let projects = gateway.ledger.projects(&key.account_id).await;
    let projects = projects.map_err(|_| GatewayError::CreditUnavailable)?;
    let project = projects.into_iter().find(|project| project.id == id);
    Ok(project.map_or_else(|| id.to_owned(), |project| project.name))
}
