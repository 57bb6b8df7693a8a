//! Queries of alerts: expiring credit and frozen accounts. None of them scans all accounts of a database.

use super::{Ledger, LedgerError};
use crate::base::money::NanoUsd;

/// A grant with credit left that will expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expiring {
    pub account_id: String,
    pub grant_id: String,
    /// Includes the part that is held.
    pub left: NanoUsd,
    pub expires_at: i64,
}

/// Range and cursor of a page of expiring grants, earliest first.
#[derive(Clone, Debug)]
pub(crate) struct ExpiringPage {
    /// Exclusive lower bound of the expiry, in seconds.
    pub from: i64,
    /// Inclusive upper bound of the expiry, in seconds.
    pub until: i64,
    /// Cursor: when the last grant of the previous page expires, and its ID.
    pub after: Option<(i64, String)>,
    pub limit: usize,
}

/// Grants on a page of [`Ledger::expiring`] that is queried from a database.
const EXPIRING_PAGE_SIZE: usize = 500;

impl Ledger {
    /// Whether other gateways may use this ledger.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// How many expiring grants to query at once. The embedded ledger scans its memory for each page, so it returns all
    /// of them with the first one.
    pub(crate) fn expiring_page_size(&self) -> usize {
        match self {
            Self::Embedded(_) => usize::MAX,
            Self::Shared(_) => EXPIRING_PAGE_SIZE,
        }
    }

    /// One page of expiring grants. Closed accounts are left out: they cannot use their credit.
    pub(crate) async fn expiring(&self, page: &ExpiringPage) -> Result<Vec<Expiring>, LedgerError> {
        match self {
            Self::Embedded(ledger) => Ok(ledger.expiring(page)),
            Self::Shared(ledger) => ledger.expiring(page).await,
        }
    }

    /// Up to `limit` frozen accounts; `None` before the first audit.
    pub(crate) async fn frozen_accounts(
        &self,
        limit: usize,
    ) -> Result<Option<Vec<String>>, LedgerError> {
        match self {
            Self::Embedded(ledger) => Ok(ledger.frozen_accounts(limit)),
            Self::Shared(ledger) => ledger.frozen_accounts(limit).await.map(Some),
        }
    }
}
