//! What an operator must hear of, before customers do.
//!
//! Every gateway looks every half a minute, at what has changed and at what is open, never through all
//! accounts or calls. What is found is written down in the office, where it is open once, however many
//! gateways have found it; then it is told, by signed messages and letters, until somebody has heard.

mod balances;
mod books;
mod deliver;
mod expiries;
mod look;
mod noticed;
mod over_bound;
mod refusing;
mod unbilled;
mod upstreams;
pub mod words;

pub use deliver::deliver;
pub use look::{look, send_test};
pub use noticed::Alerts;

use serde_json::Value;

use crate::{
    backoffice::{Alert, AlertKind, BackofficeError},
    gateway::Gateway,
    ledger::{Ledger, LedgerError},
};

/// Why not everything could be looked at, or written down.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error(transparent)]
    Backoffice(#[from] BackofficeError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Something that is so.
struct Sighting {
    kind: AlertKind,
    subject: String,
    detail: Value,
}

/// What a look has come to.
#[derive(Default)]
struct Found<'a> {
    seen: Vec<Sighting>,
    /// What was open and is so no longer.
    over: Vec<&'a Alert>,
}

/// What a look goes by.
struct View<'a> {
    gateway: &'a Gateway,
    now: i64,
    /// The alerts that are open, or, of very many of a kind, those that were not seen for the longest.
    open: &'a [Alert],
}

impl<'a> View<'a> {
    fn open_of(&self, kind: AlertKind) -> impl Iterator<Item = &'a Alert> {
        self.open.iter().filter(move |alert| alert.kind == kind)
    }

    fn is_open(&self, kind: AlertKind, subject: &str) -> Option<&'a Alert> {
        self.open_of(kind).find(|alert| alert.subject == subject)
    }

    /// Whatever was open of this kind is over: nobody wants to hear of it.
    fn all_over(&self, kind: AlertKind) -> Found<'a> {
        Found {
            seen: Vec::new(),
            over: self.open_of(kind).collect(),
        }
    }

    /// All that is so is known: what is open and was not seen is over.
    fn over_but(&self, kind: AlertKind, seen: Vec<Sighting>) -> Found<'a> {
        let is_seen = |alert: &&Alert| seen.iter().any(|one| one.subject == alert.subject);
        let over = self.open_of(kind).filter(|alert| !is_seen(alert)).collect();
        Found { seen, over }
    }

    /// The same where this gateway does not see what another does: it is over once nobody has seen it for a while.
    fn over_unless_others_see(&self, kind: AlertKind, seen: Vec<Sighting>) -> Found<'a> {
        let mut found = self.over_but(kind, seen);
        let timeout = self.others_look_within();
        found
            .over
            .retain(|alert| alert.seen_at.saturating_add(timeout) <= self.now);
        found
    }

    /// Seconds in which every other gateway has looked twice.
    fn others_look_within(&self) -> i64 {
        match *self.gateway.ledger {
            Ledger::Embedded(_) => 0,
            Ledger::Shared(_) => {
                let every = self.gateway.alerts.settings.every.as_secs();
                i64::try_from(every).unwrap_or(0).saturating_mul(2) + 5
            }
        }
    }
}
