//! Pruning: the calls and entries of old months are removed. Daily sums stay, and an opening entry keeps each account's
//! balance, so the ledger still adds up.

use super::{Ledger, LedgerError};
use crate::base::month::Month;

/// What was removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pruned {
    pub calls: u64,
    /// Grants, expiries and reversals; charges are calls.
    pub entries: u64,
    /// The months whose tables were detached in PostgreSQL, e.g. `2026-11`, oldest first.
    pub months: Vec<String>,
}

impl Ledger {
    /// Removes the calls and entries of the months before this one, beside running calls.
    pub(crate) async fn prune(&self, before: Month) -> Result<Pruned, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.prune(before).await,
            Self::Shared(ledger) => ledger.prune(before).await,
        }
    }

    /// Prepares the storage of the coming months.
    pub(crate) async fn add_months(&self) -> Result<(), LedgerError> {
        match self {
            Self::Embedded(_) => Ok(()),
            Self::Shared(ledger) => ledger.add_months().await,
        }
    }
}
