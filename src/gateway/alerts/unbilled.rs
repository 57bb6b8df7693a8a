//! Check for calls of the last hour that could not be charged.

use std::collections::BTreeMap;

use serde_json::json;

use super::{CheckContext, CheckResult, Finding};
use crate::{
    backoffice::AlertKind,
    ledger::{Call, CallsPage, LedgerError, Outcome},
};

const KIND: AlertKind = AlertKind::StreamUnbilled;
/// Age in seconds up to which a call counts.
const MAX_AGE: i64 = 3_600;
/// Number of calls that are counted for each outcome.
const MAX_COUNTED: usize = 100;
/// Subject of the alert if the gateway failed to write a charge.
const GATEWAY: &str = "gateway";

#[derive(Default)]
struct Count {
    calls: u64,
    /// Whether there may be more calls than were counted.
    is_at_least: bool,
    latest: Option<Call>,
}

pub(crate) async fn check<'a>(context: &CheckContext<'a>) -> Result<CheckResult<'a>, LedgerError> {
    let since_ms = context.now.saturating_sub(MAX_AGE).saturating_mul(1_000);
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let mut any_cut_off = false;
    for outcome in [Outcome::NoUsage, Outcome::NotCharged] {
        let page = CallsPage {
            outcome: Some(outcome),
            limit: MAX_COUNTED,
            ..CallsPage::default()
        };
        let calls = context.gateway.ledger.calls_page(&page).await?.calls;
        let oldest = calls.last();
        let cut_off =
            calls.len() == MAX_COUNTED && oldest.is_some_and(|one| one.ended_ms > since_ms);
        any_cut_off |= cut_off;
        // Calls are listed newest first.
        for call in calls.into_iter().take_while(|one| one.ended_ms > since_ms) {
            let count = counts.entry(subject(&call)).or_default();
            count.calls += 1;
            count.is_at_least |= cut_off;
            count.latest.get_or_insert(call);
        }
    }
    let findings = counts.into_iter().map(|(subject, count)| Finding {
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
    let mut result = context.resolve_others(KIND, findings.collect());
    if any_cut_off {
        // A subject without a counted call may have one among the calls that were cut off.
        result.resolved.clear();
    }
    Ok(result)
}

fn subject(call: &Call) -> String {
    let upstream = call.upstream.as_deref();
    let upstream = upstream.filter(|_| call.outcome == Outcome::NoUsage);
    upstream.unwrap_or(GATEWAY).to_owned()
}
