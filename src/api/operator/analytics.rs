//! Sums over calls, by account, model and day.

use std::{collections::BTreeMap, sync::Arc};

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
    ledger::{AnalyticsFilter, AnalyticsRow},
};

#[derive(Deserialize)]
pub(crate) struct AnalyticsQuery {
    #[serde(flatten)]
    times: TimeRange,
    account: Option<String>,
    model: Option<String>,
}

#[derive(Serialize)]
struct AnalyticsObject {
    object: &'static str,
    from: Option<String>,
    to: Option<String>,
    total: Sums,
    by_account: Vec<Group>,
    by_model: Vec<Group>,
    by_day: Vec<Group>,
}

/// Sums over the calls of one account, model or day.
#[derive(Serialize)]
struct Group {
    #[serde(flatten)]
    name: BTreeMap<&'static str, String>,
    #[serde(flatten)]
    sums: Sums,
}

#[derive(Clone, Copy, Default, Serialize)]
struct Sums {
    requests: u64,
    /// Requests that were charged.
    charged_requests: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    cache_write_tokens: u64,
    completion_tokens: u64,
    reasoning_tokens: u64,
    cost: NanoUsd,
    /// Amount that providers charge the operator, for requests whose deployment has a configured cost.
    provider_cost: NanoUsd,
    /// Charges of those requests less `provider_cost`.
    margin: NanoUsd,
    /// Requests that were charged less than their provider cost.
    below_cost_requests: u64,
}

impl Sums {
    fn add(&mut self, row: &AnalyticsRow) {
        self.requests += row.calls;
        self.charged_requests += row.charged;
        self.prompt_tokens += row.prompt;
        self.cached_tokens += row.cached;
        self.cache_write_tokens += row.cache_write;
        self.completion_tokens += row.completion;
        self.reasoning_tokens += row.reasoning;
        let plus =
            |sum: NanoUsd, more: NanoUsd| NanoUsd::new(sum.nanos().saturating_add(more.nanos()));
        self.cost = plus(self.cost, row.cost);
        self.provider_cost = plus(self.provider_cost, row.provider_cost);
        self.margin = plus(self.margin, row.margin);
        self.below_cost_requests += row.below_cost;
    }
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    ReadQuery(query): ReadQuery<AnalyticsQuery>,
) -> Result<Response, OperatorError> {
    let (from, to) = query.times.read()?;
    let rows = gateway
        .ledger
        .analytics(AnalyticsFilter {
            from_ms: from.saturating_mul(1_000),
            to_ms: to.saturating_mul(1_000),
            account_id: query.account,
            model: query.model,
        })
        .await?;
    let mut total = Sums::default();
    for row in &rows {
        total.add(row);
    }
    let object = AnalyticsObject {
        object: "analytics",
        from: (from > 0).then(|| timestamp::shown(from)),
        to: (to < i64::MAX).then(|| timestamp::shown(to)),
        total,
        by_account: grouped(&rows, "account_id", |row| &row.account_id),
        by_model: grouped(&rows, "model", |row| &row.model),
        by_day: grouped(&rows, "day", |row| &row.day),
    };
    Ok(Json(object).into_response())
}

fn grouped<'a>(
    rows: &'a [AnalyticsRow],
    name: &'static str,
    key: impl Fn(&'a AnalyticsRow) -> &'a String,
) -> Vec<Group> {
    let mut groups: BTreeMap<&String, Sums> = BTreeMap::new();
    for row in rows {
        groups.entry(key(row)).or_default().add(row);
    }
    let group = |(value, sums): (&String, Sums)| Group {
        name: BTreeMap::from([(name, value.clone())]),
        sums,
    };
    groups.into_iter().map(group).collect()
}
