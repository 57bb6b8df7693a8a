//! What an account's calls used and cost.

use std::sync::Arc;

use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};

use super::{accounts::List, error::OperatorError, path::Path};
use crate::{gateway::Gateway, http::Json, ledger::UsageRow, money::NanoUsd, time_text};

#[derive(Serialize)]
struct UsageObject {
    id: String,
    object: &'static str,
    account_id: String,
    key_id: String,
    model: String,
    /// The model that answered: another one for hybrids.
    routed_model: String,
    prompt_tokens: u32,
    cached_tokens: u32,
    completion_tokens: u32,
    reasoning_tokens: u32,
    /// US dollars per token at that time.
    prices: PricesObject,
    cost: NanoUsd,
    stream: bool,
    created_at: String,
}

#[derive(Serialize)]
struct PricesObject {
    prompt: String,
    completion: String,
    input_cache_read: String,
}

impl From<UsageRow> for UsageObject {
    fn from(row: UsageRow) -> Self {
        Self {
            id: row.id,
            object: "usage",
            account_id: row.account_id,
            key_id: row.key_id,
            model: row.model,
            routed_model: row.routed_model,
            prompt_tokens: row.usage.prompt,
            cached_tokens: row.usage.cached,
            completion_tokens: row.usage.completion,
            reasoning_tokens: row.usage.reasoning,
            prices: PricesObject {
                prompt: row.prices.input.to_string(),
                completion: row.prices.output.to_string(),
                input_cache_read: row.prices.cached_input.to_string(),
            },
            cost: row.cost,
            stream: row.stream,
            created_at: time_text::shown(row.at),
        }
    }
}

#[derive(Deserialize)]
pub struct Times {
    from: Option<String>,
    to: Option<String>,
}

pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Path(account_id): Path<String>,
    times: Result<Query<Times>, QueryRejection>,
) -> Result<Response, OperatorError> {
    let Query(times) =
        times.map_err(|_| OperatorError::invalid("from", "The query cannot be read."))?;
    let from = time("from", times.from.as_deref(), 0)?;
    let to = time("to", times.to.as_deref(), i64::MAX)?;
    let rows = gateway.ledger.usage(&account_id, from, to).await?;
    let rows = rows.into_iter().map(UsageObject::from);
    Ok(Json(List::new(rows.collect())).into_response())
}

fn time(name: &str, text: Option<&str>, absent: i64) -> Result<i64, OperatorError> {
    let Some(text) = text else { return Ok(absent) };
    // In a query, a plus sign is a space.
    time_text::read(&text.replace(' ', "+")).ok_or_else(|| {
        let message = format!("`{name}` must be an ISO 8601 time, e.g. 2027-01-31T00:00:00Z.");
        OperatorError::invalid(name, message)
    })
}
