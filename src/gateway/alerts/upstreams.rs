//! Upstreams that are left alone because they failed. Each gateway knows of its own calls only.

use std::time::Instant;

use serde_json::json;

use super::{Found, Sighting, View};
use crate::{
    backoffice::AlertKind,
    upstream::deployments::{CircuitState, ConfiguredDeployment},
};

const KIND: AlertKind = AlertKind::UpstreamFailing;

pub fn look<'a>(view: &View<'a>) -> Found<'a> {
    let (routes, now) = (view.gateway.routes(), Instant::now());
    let mut seen: Vec<Sighting> = Vec::new();
    for listed in routes.deployments.configured() {
        let circuit = listed.counts().circuit;
        // One that only asked to be left alone for a while has not failed.
        if circuit.state(now) == CircuitState::Closed || !circuit.has_opened() {
            continue;
        }
        // Why it failed is left out: providers quote what they were asked.
        let detail = json!({
            "provider": &*listed.provider,
            "model": listed.model,
            "upstream_model": listed.upstream_model,
            "failures_in_a_row": circuit.consecutive_failures(),
        });
        seen.push(Sighting {
            kind: KIND,
            subject: name(listed),
            detail,
        });
    }
    view.over_unless_others_see(KIND, seen)
}

/// As it stands in the configuration.
fn name(listed: &ConfiguredDeployment) -> String {
    let (provider, model) = (&listed.provider, &listed.model);
    match &listed.upstream_model {
        Some(name) => format!("{provider}/{model}/{name}"),
        None => format!("{provider}/{model}"),
    }
}
