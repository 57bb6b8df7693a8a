//! Check for providers that refuse the operator's key, account or model name. Each gateway checks its own calls only.

use serde_json::json;

use super::{CheckContext, CheckResult, Finding};
use crate::backoffice::AlertKind;

const KIND: AlertKind = AlertKind::UpstreamRefuses;

pub(crate) fn check<'a>(context: &CheckContext<'a>) -> CheckResult<'a> {
    let refusals = context.gateway.alerts.refusals().into_iter();
    let findings = refusals.map(|(upstream, refusals)| Finding {
        kind: KIND,
        detail: json!({
            "provider": upstream,
            "calls": refusals.calls,
            "status": refusals.status,
        }),
        subject: upstream,
    });
    context.resolve_unless_seen_elsewhere(KIND, findings.collect())
}
