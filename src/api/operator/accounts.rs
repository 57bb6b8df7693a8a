//! Accounts and their credit grants.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};

use super::{body::JsonBody, error::OperatorError, path::Path, query::ReadQuery};
use crate::{
    api::Json,
    base::{money::NanoUsd, timestamp},
    catalog::{Tier, Track},
    gateway::{
        Gateway,
        actions::{self, OperatorActions},
    },
    ledger::{Account, AccountChange, Grant, LedgerError, NewAccount, NewGrant},
};

#[derive(Serialize)]
struct AccountObject<'a> {
    id: &'a str,
    object: &'static str,
    email: &'a str,
    name: Option<&'a str>,
    track: Track,
    tier: Tier,
    closed: bool,
    /// Whether its ledger entries do not add up. A frozen account starts no new calls until an audit finds no
    /// violation.
    frozen: bool,
    balance: NanoUsd,
    /// Credit reserved for running calls.
    held: NanoUsd,
    available: NanoUsd,
    credits_expire_at: Option<String>,
    created_at: String,
}

impl<'a> AccountObject<'a> {
    async fn new(gateway: &Gateway, account: &'a Account) -> Result<Self, LedgerError> {
        let balances = gateway.ledger.balances(&account.id).await?;
        Ok(Self {
            id: &account.id,
            object: "account",
            email: &account.email,
            name: account.name.as_deref(),
            track: account.plan.track(),
            tier: account.plan.tier(),
            closed: account.closed,
            frozen: gateway.ledger.is_frozen(&account.id).await?,
            balance: balances.balance,
            held: balances.held,
            available: balances.available,
            credits_expire_at: balances.expires_at.map(timestamp::shown),
            created_at: timestamp::shown(account.created_at),
        })
    }
}

#[derive(Serialize)]
struct GrantObject<'a> {
    id: &'a str,
    object: &'static str,
    account_id: &'a str,
    amount: NanoUsd,
    expires_at: Option<String>,
    reason: Option<&'a str>,
    reference: Option<&'a str>,
    created_at: String,
}

impl<'a> GrantObject<'a> {
    fn new(account_id: &'a str, grant: &'a Grant) -> Self {
        Self {
            id: &grant.id,
            object: "grant",
            account_id,
            amount: grant.amount,
            expires_at: grant.expires_at.map(timestamp::shown),
            reason: grant.reason.as_deref(),
            reference: grant.reference.as_deref(),
            created_at: timestamp::shown(grant.created_at),
        }
    }
}

/// A list, in the form that all lists of this API have.
#[derive(Serialize)]
pub(crate) struct List<T> {
    object: &'static str,
    data: Vec<T>,
}

impl<T> List<T> {
    pub(crate) fn new(data: Vec<T>) -> Self {
        Self {
            object: "list",
            data,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Create {
    email: String,
    track: Track,
    tier: Tier,
    name: Option<String>,
}

pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    JsonBody(Create {
        email,
        track,
        tier,
        name,
    }): JsonBody<Create>,
) -> Result<Response, OperatorError> {
    let new = NewAccount {
        email,
        name,
        track,
        tier,
    };
    let account = OperatorActions::by_token(&gateway)
        .create_account(new)
        .await?;
    Ok(Json(AccountObject::new(&gateway, &account).await?).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Only accounts with this email, in any case.
    email: Option<String>,
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    ReadQuery(query): ReadQuery<ListQuery>,
) -> Result<Response, OperatorError> {
    let accounts = match &query.email {
        Some(email) => gateway.ledger.accounts_with_email(email).await?,
        None => gateway.ledger.accounts().await?,
    };
    let mut shown = Vec::with_capacity(accounts.len());
    for account in &accounts {
        shown.push(AccountObject::new(&gateway, account).await?);
    }
    Ok(Json(List::new(shown)).into_response())
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Response, OperatorError> {
    let account = gateway.ledger.account(&id).await?;
    Ok(Json(AccountObject::new(&gateway, &account).await?).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    track: Option<Track>,
    tier: Option<Tier>,
    closed: Option<bool>,
}

pub(crate) async fn change(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    JsonBody(Change {
        track,
        tier,
        closed,
    }): JsonBody<Change>,
) -> Result<Response, OperatorError> {
    let change = AccountChange {
        track,
        tier,
        closed,
        ..AccountChange::default()
    };
    let account = OperatorActions::by_token(&gateway)
        .change_account(id, change)
        .await?;
    Ok(Json(AccountObject::new(&gateway, &account).await?).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateGrant {
    amount: String,
    expires_at: Option<String>,
    reason: Option<String>,
    reference: Option<String>,
}

pub(crate) async fn grant(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    JsonBody(CreateGrant {
        amount,
        expires_at,
        reason,
        reference,
    }): JsonBody<CreateGrant>,
) -> Result<Response, OperatorError> {
    let amount = actions::amount(&amount)?;
    let expires_at = match expires_at.as_deref() {
        None => None,
        Some(text) => Some(timestamp::read(text).ok_or_else(|| {
            let message = "`expires_at` must be an ISO 8601 time, e.g. \"2027-01-31T00:00:00Z\".";
            OperatorError::invalid("expires_at", message)
        })?),
    };
    let new = NewGrant {
        amount,
        expires_at,
        reason,
        reference,
    };
    let grant = OperatorActions::by_token(&gateway)
        .grant(id.clone(), new)
        .await?;
    Ok(Json(GrantObject::new(&id, &grant)).into_response())
}

pub(crate) async fn grants(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Response, OperatorError> {
    let grants = gateway.ledger.grants(&id).await?;
    let grants = grants.iter().map(|grant| GrantObject::new(&id, grant));
    Ok(Json(List::new(grants.collect())).into_response())
}
