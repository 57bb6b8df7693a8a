//! Check for providers that report more tokens than requests could use. Each gateway checks its own calls only.

use serde_json::json;

use super::{CheckContext, CheckResult, Finding};
use crate::backoffice::AlertKind;

const KIND: AlertKind = AlertKind::UsageOverBound;

pub(crate) fn check<'a>(context: &CheckContext<'a>) -> CheckResult<'a> {
    let reported = context.gateway.alerts.over_reports().into_iter();
    let findings = reported.map(|(upstream, reported)| Finding {
        kind: KIND,
        detail: json!({
            "provider": upstream,
            "calls": reported.calls,
            "not_charged": reported.lost,
        }),
        subject: upstream,
    });
    context.resolve_unless_seen_elsewhere(KIND, findings.collect())
}
