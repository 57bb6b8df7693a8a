//! Alerts: conditions that an operator should learn of before customers do.
//!
//! Every gateway checks for them twice a minute by default. A check reads what has changed and the open alerts, never
//! all accounts or calls. Alerts are stored in the backoffice, where each is open only once, however many gateways
//! find it. They are then delivered by signed webhook messages and emails. A failed check is repeated at the next
//! round, and a failed delivery is retried until it succeeds or its retries are used up.

mod audit;
mod balances;
mod budgets;
mod check;
mod deliver;
mod expiries;
pub(crate) mod messages;
mod over_bound;
mod refusing;
mod state;
mod unbilled;
mod upstreams;

pub use check::{check, send_test};
pub use deliver::deliver;
pub(crate) use state::Alerts;

use serde_json::Value;

use crate::{
    backoffice::{Alert, AlertKind, BackofficeError},
    gateway::Gateway,
    ledger::LedgerError,
};

/// Why a round of checks was incomplete, or its result was not stored.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Backoffice(#[from] BackofficeError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// A condition that holds now and must have an open alert.
struct Finding {
    kind: AlertKind,
    subject: String,
    detail: Value,
}

/// Result of the check of one kind of alert.
#[derive(Default)]
struct CheckResult<'a> {
    findings: Vec<Finding>,
    /// Open alerts whose condition no longer holds.
    resolved: Vec<&'a Alert>,
}

/// Input of the checks.
struct CheckContext<'a> {
    gateway: &'a Gateway,
    now: i64,
    /// The open alerts; where a kind has very many, those that have not been seen for the longest time.
    open: &'a [Alert],
}

impl<'a> CheckContext<'a> {
    fn open_of(&self, kind: AlertKind) -> impl Iterator<Item = &'a Alert> {
        self.open.iter().filter(move |alert| alert.kind == kind)
    }

    fn open_alert(&self, kind: AlertKind, subject: &str) -> Option<&'a Alert> {
        self.open_of(kind).find(|alert| alert.subject == subject)
    }

    /// Resolves all open alerts of a kind.
    fn resolve_all(&self, kind: AlertKind) -> CheckResult<'a> {
        CheckResult {
            findings: Vec::new(),
            resolved: self.open_of(kind).collect(),
        }
    }

    /// Resolves the open alerts that have no finding. The findings must be complete.
    fn resolve_others(&self, kind: AlertKind, findings: Vec<Finding>) -> CheckResult<'a> {
        let is_found = |alert: &&Alert| findings.iter().any(|one| one.subject == alert.subject);
        let resolved = self
            .open_of(kind)
            .filter(|alert| !is_found(alert))
            .collect();
        CheckResult { findings, resolved }
    }

    /// Resolves the open alerts that have no finding here and that no other gateway has seen for a while. For
    /// conditions that each gateway sees only in its own calls.
    fn resolve_unless_seen_elsewhere(
        &self,
        kind: AlertKind,
        findings: Vec<Finding>,
    ) -> CheckResult<'a> {
        let mut result = self.resolve_others(kind, findings);
        let timeout = self.other_gateways_check_within();
        result
            .resolved
            .retain(|alert| alert.seen_at.saturating_add(timeout) <= self.now);
        result
    }

    /// Seconds within which every other gateway has checked twice.
    fn other_gateways_check_within(&self) -> i64 {
        if !self.gateway.ledger.is_shared() {
            return 0;
        }
        let every = self.gateway.alerts.settings.every.as_secs();
        i64::try_from(every).unwrap_or(0).saturating_mul(2) + 5
    }
}
