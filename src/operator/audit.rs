//! `POST /operator/audit`: does everything add up?

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::Serialize;

use super::error::OperatorError;
use crate::{acts::Acts, gateway::Gateway, http::Json, ledger::Audit};

/// An audit as it is told, here and on the command line.
#[derive(Serialize)]
pub struct AuditObject {
    object: &'static str,
    ok: bool,
    accounts: usize,
    entries: u64,
    charges: u64,
    duration_ms: u128,
    violations: Vec<ViolationObject>,
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
        Self {
            object: "audit",
            ok: violations.is_empty(),
            accounts: audit.accounts.len(),
            entries: audit.entries,
            charges: audit.charges,
            duration_ms: audit.took.as_millis(),
            violations,
        }
    }
}

pub async fn run(State(gateway): State<Arc<Gateway>>) -> Result<Response, OperatorError> {
    let audit = Acts::by_token(&gateway).audit().await?;
    Ok(Json(AuditObject::from(audit)).into_response())
}
