//! Upstreams that refuse the operator's key, account or name for a model. Each gateway knows of its own calls only.

use serde_json::json;

use super::{Found, Sighting, View};
use crate::backoffice::AlertKind;

const KIND: AlertKind = AlertKind::UpstreamRefuses;

pub fn look<'a>(view: &View<'a>) -> Found<'a> {
    let refusing = view.gateway.alerts.refusing().into_iter();
    let seen = refusing.map(|(upstream, refusing)| Sighting {
        kind: KIND,
        detail: json!({
            "provider": upstream,
            "calls": refusing.calls,
            "status": refusing.status,
        }),
        subject: upstream,
    });
    view.over_unless_others_see(KIND, seen.collect())
}
