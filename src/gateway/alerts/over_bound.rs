//! Upstreams that report more tokens than requests could use. Each gateway knows of its own calls only.

use serde_json::json;

use super::{Found, Sighting, View};
use crate::backoffice::AlertKind;

const KIND: AlertKind = AlertKind::UsageOverBound;

pub fn look<'a>(view: &View<'a>) -> Found<'a> {
    let reported = view.gateway.alerts.reported().into_iter();
    let seen = reported.map(|(upstream, reported)| Sighting {
        kind: KIND,
        detail: json!({
            "provider": upstream,
            "calls": reported.calls,
            "not_charged": reported.lost,
        }),
        subject: upstream,
    });
    view.over_unless_others_see(KIND, seen.collect())
}
