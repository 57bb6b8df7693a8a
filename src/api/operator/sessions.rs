//! `GET /operator/sessions`: usage by the session of a coding agent.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};

use super::{
    error::OperatorError,
    query::{ReadQuery, TimeRange},
};
use crate::{
    api::Json,
    base::{money::NanoUsd, timestamp},
    gateway::Gateway,
    ledger::{SessionCursor, SessionUse, SessionsPage},
};

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 999;

/// Its times are not a flattened [`TimeRange`], beside which a number could not be read.
#[derive(Deserialize)]
pub(crate) struct SessionsQuery {
    from: Option<String>,
    to: Option<String>,
    account: Option<String>,
    limit: Option<usize>,
    before: Option<String>,
}

/// A page of sessions, the one that was used last first.
#[derive(Serialize)]
struct SessionList {
    object: &'static str,
    data: Vec<SessionObject>,
    has_more: bool,
    /// The value of `before` for the next page.
    next: Option<String>,
}

#[derive(Serialize)]
struct SessionObject {
    object: &'static str,
    /// As the agent named it.
    session: String,
    account_id: String,
    /// The program that the agent is, if it said so.
    client: Option<String>,
    requests: u64,
    /// Requests that were charged.
    charged_requests: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    cache_write_tokens: u64,
    completion_tokens: u64,
    reasoning_tokens: u64,
    /// How much of the input came from a provider's cache, from 0 to 1; `null` without input.
    cache_hit_rate: Option<f64>,
    cost: NanoUsd,
    first_at: String,
    last_at: String,
}

impl From<SessionUse> for SessionObject {
    fn from(used: SessionUse) -> Self {
        Self {
            object: "session",
            cache_hit_rate: used.cache_hits().map(|hits| f64::from(hits) / 10_000.0),
            session: used.session,
            account_id: used.account_id,
            client: used.client,
            requests: used.calls,
            charged_requests: used.charged,
            prompt_tokens: used.prompt,
            cached_tokens: used.cached,
            cache_write_tokens: used.cache_write,
            completion_tokens: used.completion,
            reasoning_tokens: used.reasoning,
            cost: used.cost,
            first_at: timestamp::shown_ms(used.first_ms),
            last_at: timestamp::shown_ms(used.last_ms),
        }
    }
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    ReadQuery(query): ReadQuery<SessionsQuery>,
) -> Result<Response, OperatorError> {
    let times = TimeRange {
        from: query.from,
        to: query.to,
    };
    let (from, to) = times.read()?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let message = format!("`limit` must be a number from 1 to {MAX_LIMIT}.");
        return Err(OperatorError::invalid("limit", message));
    }
    let before = query.before.as_deref();
    let before = before.map(|text| {
        let message = "`before` must be the `next` of the page before.";
        SessionCursor::parse(text).ok_or_else(|| OperatorError::invalid("before", message))
    });
    let page = SessionsPage {
        account_id: query.account,
        seen: None,
        from_ms: from.saturating_mul(1_000),
        to_ms: to.saturating_mul(1_000),
        before: before.transpose()?,
        // One more tells whether there is a further page.
        limit: limit + 1,
    };
    let mut sessions = gateway.ledger.sessions(page).await?;
    let has_more = sessions.len() > limit;
    sessions.truncate(limit);
    let page_end = sessions.last().filter(|_| has_more);
    let list = SessionList {
        object: "list",
        next: page_end.map(|used| used.cursor().to_text()),
        data: sessions.into_iter().map(SessionObject::from).collect(),
        has_more,
    };
    Ok(Json(list).into_response())
}
