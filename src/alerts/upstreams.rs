//! Upstreams that are left alone because they failed. Each gateway knows of its own calls only.

use std::time::Instant;

use serde_json::json;

use super::{Found, Sighting, View};
use crate::{
    ledger::Ledger,
    office::AlertKind,
    routing::{Listed, State},
};

const KIND: AlertKind = AlertKind::UpstreamFailing;

pub fn look<'a>(view: &View<'a>) -> Found<'a> {
    let (routes, now) = (view.gateway.routes(), Instant::now());
    let mut seen: Vec<Sighting> = Vec::new();
    for listed in routes.deployments.listed() {
        let circuit = listed.counts().circuit;
        // One that only asked to be left alone for a while has not failed.
        if circuit.state(now) == State::Closed || !circuit.has_opened() {
            continue;
        }
        // Why it failed is left out: providers quote what they were asked.
        let detail = json!({
            "provider": &*listed.provider,
            "model": listed.model,
            "upstream_model": listed.upstream_model,
            "failures_in_a_row": circuit.in_a_row(),
        });
        seen.push(Sighting {
            kind: KIND,
            subject: name(listed),
            detail,
        });
    }
    let mut found = view.over_but(KIND, seen);
    // What this gateway does not see another may: it is over once nobody has seen it for a while.
    let patience = patience(view);
    found
        .over
        .retain(|alert| alert.seen_at.saturating_add(patience) <= view.now);
    found
}

/// As it stands in the configuration.
fn name(listed: &Listed) -> String {
    let (provider, model) = (&listed.provider, &listed.model);
    match &listed.upstream_model {
        Some(name) => format!("{provider}/{model}/{name}"),
        None => format!("{provider}/{model}"),
    }
}

/// Long enough for every other gateway to have looked twice.
fn patience(view: &View<'_>) -> i64 {
    match *view.gateway.ledger {
        Ledger::Embedded(_) => 0,
        Ledger::Shared(_) => {
            let every = view.gateway.alerts.settings.every.as_secs();
            i64::try_from(every).unwrap_or(0).saturating_mul(2) + 5
        }
    }
}
