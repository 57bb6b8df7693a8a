//! API keys: create, list, change, rotate, disable, enable and delete.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};

use super::{
    body::JsonBody,
    error::OperatorError,
    key_terms::{Change, Create, TermsObject},
    path::Path,
    query::ReadQuery,
};
use crate::{
    api::Json,
    base::{keys::ApiKey, timestamp},
    gateway::{Gateway, actions::OperatorActions},
    ledger::{
        DEFAULT_GRACE, Key, KeyFilter, KeyState, KeysPage, LedgerError, MAX_GRACE, PreviousSecret,
    },
};

/// Keys of a page: unless the query says, and at most.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 500;

#[derive(Serialize)]
struct KeyObject<'a> {
    id: &'a str,
    object: &'static str,
    account_id: &'a str,
    name: &'a str,
    prefix: &'a str,
    state: &'static str,
    created_at: String,
    #[serde(flatten)]
    terms: TermsObject<'a>,
    /// The secret that was replaced, while it is valid.
    previous: Option<PreviousObject<'a>>,
    /// The full key, only in the response that creates or rotates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

#[derive(Serialize)]
struct PreviousObject<'a> {
    prefix: &'a str,
    valid_until: String,
}

impl<'a> PreviousObject<'a> {
    fn of(previous: &'a PreviousSecret) -> Self {
        Self {
            prefix: &previous.prefix,
            valid_until: timestamp::shown(previous.valid_until),
        }
    }
}

impl<'a> KeyObject<'a> {
    fn of(key: &'a Key, gateway: &Gateway) -> Self {
        let now = gateway.ledger.clock().now();
        Self {
            id: &key.id,
            object: "key",
            account_id: &key.account_id,
            name: &key.name,
            prefix: &key.prefix,
            state: key.state.as_str(),
            created_at: timestamp::shown(key.created_at),
            terms: TermsObject::of(key),
            previous: key.previous_at(now).map(PreviousObject::of),
            key: None,
        }
    }
}

pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    Path(account_id): Path<String>,
    JsonBody(create): JsonBody<Create>,
) -> Result<Response, OperatorError> {
    let new = create.checked(&gateway)?;
    let (key, secret) = OperatorActions::by_token(&gateway)
        .create_key(account_id, new)
        .await?;
    Ok(in_full(&gateway, &key, &secret))
}

/// The one response that has the key in full.
fn in_full(gateway: &Gateway, key: &Key, secret: &ApiKey) -> Response {
    let shown = KeyObject {
        key: Some(secret.reveal()),
        ..KeyObject::of(key, gateway)
    };
    Json(shown).into_response()
}

#[derive(Deserialize)]
pub(crate) struct ListQuery {
    /// The ID of the last key of the previous page.
    before: Option<String>,
    limit: Option<usize>,
    /// Only deleted keys, or only the others.
    deleted: Option<bool>,
}

/// A page of keys, newest first.
#[derive(Serialize)]
struct KeyList<'a> {
    object: &'static str,
    data: Vec<KeyObject<'a>>,
    has_more: bool,
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    Path(account_id): Path<String>,
    ReadQuery(query): ReadQuery<ListQuery>,
) -> Result<Response, OperatorError> {
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let message = format!("`limit` must be a number from 1 to {MAX_LIMIT}.");
        return Err(OperatorError::invalid("limit", message));
    }
    let before = match query.before {
        None => None,
        Some(id) => Some(cursor(&gateway, &account_id, &id).await?),
    };
    let filter = match query.deleted {
        None => KeyFilter::All,
        Some(true) => KeyFilter::Deleted,
        Some(false) => KeyFilter::Live,
    };
    let page = KeysPage {
        account_id: &account_id,
        filter,
        member_id: None,
        before,
        // One more tells whether there is a further page.
        limit: limit + 1,
    };
    let mut keys = gateway.ledger.keys_page(page).await?;
    let has_more = keys.len() > limit;
    keys.truncate(limit);
    let list = KeyList {
        object: "list",
        data: keys
            .iter()
            .map(|key| KeyObject::of(key, &gateway))
            .collect(),
        has_more,
    };
    Ok(Json(list).into_response())
}

/// The position of a key, after which a page begins.
async fn cursor(
    gateway: &Gateway,
    account_id: &str,
    id: &str,
) -> Result<(i64, String), OperatorError> {
    let found = match gateway.ledger.key(id).await {
        Ok(key) if key.account_id == account_id => Some((key.created_at, key.id)),
        Ok(_) | Err(LedgerError::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let unknown =
        || OperatorError::invalid("before", "`before` must be the ID of a key of the account.");
    found.ok_or_else(unknown)
}

pub(crate) async fn change(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    JsonBody(change): JsonBody<Change>,
) -> Result<Response, OperatorError> {
    let change = change.checked(&gateway)?;
    let key = OperatorActions::by_token(&gateway)
        .change_key(id, change)
        .await?;
    Ok(Json(KeyObject::of(&key, &gateway)).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rotate {
    /// How long the present secret stays valid.
    grace_seconds: Option<u32>,
}

pub(crate) async fn rotate(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    JsonBody(rotate): JsonBody<Rotate>,
) -> Result<Response, OperatorError> {
    let grace = rotate.grace_seconds.unwrap_or(DEFAULT_GRACE);
    if grace > MAX_GRACE {
        let message = format!("`grace_seconds` must be a number from 0 to {MAX_GRACE} (30 days).");
        return Err(OperatorError::invalid("grace_seconds", message));
    }
    let (key, secret) = OperatorActions::by_token(&gateway)
        .rotate_key(id, grace)
        .await?;
    Ok(in_full(&gateway, &key, &secret))
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
    Ok(Json(KeyObject::of(&key, &gateway)).into_response())
}
