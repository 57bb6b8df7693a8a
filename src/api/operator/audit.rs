//! `POST /operator/audit`: recomputes every balance and reports what does not add up.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::Serialize;

use super::error::OperatorError;
use crate::{
    api::Json,
    gateway::{Gateway, actions::OperatorActions},
    ledger::Audit,
};

/// Result of an audit, in the form of this API and of the command line.
#[derive(Serialize)]
pub(crate) struct AuditObject {
    object: &'static str,
    ok: bool,
    accounts: usize,
    entries: u64,
    charges: u64,
    duration_ms: u128,
    violations: Vec<ViolationObject>,
    /// Holds without a running call; the audit has released them.
    stray_holds: Vec<StrayHoldObject>,
}

#[derive(Serialize)]
struct StrayHoldObject {
    account_id: String,
    call: String,
    amount: String,
}

#[derive(Serialize)]
struct ViolationObject {
    account_id: String,
    what: String,
}

impl From<Audit> for AuditObject {
    fn from(audit: Audit) -> Self {
        let violations = audit.violations.into_iter().map(|found| ViolationObject {
            account_id: found.account_id,
            what: found.what,
        });
        let violations: Vec<_> = violations.collect();
        let strays = audit.stray_holds.into_iter().map(|stray| StrayHoldObject {
            account_id: stray.account_id,
            call: stray.call.to_string(),
            amount: stray.amount.to_string(),
        });
        Self {
            object: "audit",
            ok: violations.is_empty(),
            accounts: audit.accounts.len(),
            entries: audit.entries,
            charges: audit.charges,
            duration_ms: audit.took.as_millis(),
            violations,
            stray_holds: strays.collect(),
        }
    }
}

pub(crate) async fn run(State(gateway): State<Arc<Gateway>>) -> Result<Response, OperatorError> {
    let audit = OperatorActions::by_token(&gateway).audit().await?;
    Ok(Json(AuditObject::from(audit)).into_response())
}
