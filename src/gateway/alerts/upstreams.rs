//! Check for deployments whose circuit has opened after failures. Each gateway checks its own calls only.

use std::time::Instant;

use serde_json::json;

use super::{CheckContext, CheckResult, Finding};
use crate::{
    backoffice::AlertKind,
    upstream::deployments::{CircuitState, ConfiguredDeployment},
};

const KIND: AlertKind = AlertKind::UpstreamFailing;

pub(crate) fn check<'a>(context: &CheckContext<'a>) -> CheckResult<'a> {
    let (routes, now) = (context.gateway.routes(), Instant::now());
    let mut findings: Vec<Finding> = Vec::new();
    for listed in routes.deployments.configured() {
        let circuit = listed.counts().circuit;
        // A circuit that is open only because of `Retry-After` is not a failure.
        if circuit.state(now) == CircuitState::Closed || !circuit.has_opened() {
            continue;
        }
        // The reason of the failure is left out, because providers quote the request in it.
        let detail = json!({
            "provider": &*listed.provider,
            "model": listed.model,
            "upstream_model": listed.upstream_model,
            "failures_in_a_row": circuit.consecutive_failures(),
        });
        findings.push(Finding {
            kind: KIND,
            subject: name(listed),
            detail,
        });
    }
    context.resolve_unless_seen_elsewhere(KIND, findings)
}

/// Returns the deployment's name: its provider, model and upstream model as configured.
fn name(listed: &ConfiguredDeployment) -> String {
    let (provider, model) = (&listed.provider, &listed.model);
    match &listed.upstream_model {
        Some(name) => format!("{provider}/{model}/{name}"),
        None => format!("{provider}/{model}"),
    }
}
