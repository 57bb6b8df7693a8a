//! Calls that were served or tried and could not be charged, in the last hour.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Found, Sighting, View};
use crate::{
    backoffice::AlertKind,
    ledger::{Call, CallsPage, LedgerError, Outcome},
};

const KIND: AlertKind = AlertKind::StreamUnbilled;
/// How long one is remembered, in seconds.
const WINDOW: i64 = 3_600;
/// How many are counted.
const MOST: usize = 100;
/// Whose fault it is that a charge could not be written down.
const GATEWAY: &str = "gateway";

#[derive(Default)]
struct Count {
    calls: u64,
    /// There may be more.
    is_at_least: bool,
    latest: Option<Call>,
}

pub async fn look<'a>(view: &View<'a>) -> Result<Found<'a>, LedgerError> {
    let since_ms = view.now.saturating_sub(WINDOW).saturating_mul(1_000);
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let mut any_cut_off = false;
    for outcome in [Outcome::NoUsage, Outcome::NotCharged] {
        let page = CallsPage {
            outcome: Some(outcome),
            limit: MOST,
            ..CallsPage::default()
        };
        let calls = view.gateway.ledger.calls_page(&page).await?;
        let oldest = calls.last();
        let cut_off = calls.len() == MOST && oldest.is_some_and(|one| one.ended_ms > since_ms);
        any_cut_off |= cut_off;
        // The newest are first.
        for call in calls.into_iter().take_while(|one| one.ended_ms > since_ms) {
            let count = counts.entry(whose(&call)).or_default();
            count.calls += 1;
            count.is_at_least |= cut_off;
            count.latest.get_or_insert(call);
        }
    }
    let seen = counts.into_iter().map(|(subject, count)| Sighting {
        kind: KIND,
        detail: json!({
            "provider": subject,
            "calls_in_an_hour": count.calls,
            "at_least": count.is_at_least,
            "latest_call": count.latest.as_ref().map(|call| call.id.to_string()),
            "outcome": count.latest.as_ref().map(|call| call.outcome.as_str()),
        }),
        subject,
    });
    let mut found = view.over_but(KIND, seen.collect());
    if any_cut_off {
        // Whoever was not counted may be among the rest.
        found.over.clear();
    }
    Ok(found)
}

fn whose(call: &Call) -> String {
    let upstream = call.upstream.as_deref();
    let upstream = upstream.filter(|_| call.outcome == Outcome::NoUsage);
    upstream.unwrap_or(GATEWAY).to_owned()
}
