//! What is watched, so that operators hear of it before customers do. Nothing here looks through all
//! accounts of a database.

use super::{Ledger, LedgerError};
use crate::base::money::NanoUsd;

/// A grant with something left that expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiring {
    pub account_id: String,
    pub grant_id: String,
    /// With what is held of it.
    pub left: NanoUsd,
    pub expires_at: i64,
}

/// Which of them are wanted, the earliest first.
#[derive(Clone, Debug)]
pub struct ExpiringPage {
    /// Those that expire after this, in seconds.
    pub from: i64,
    /// And not after this.
    pub until: i64,
    /// The last one of the page before: when it expires, and the grant.
    pub after: Option<(i64, String)>,
    pub limit: usize,
}

impl Ledger {
    /// Of accounts that are closed nothing: nobody can use it.
    pub async fn expiring(&self, page: &ExpiringPage) -> Result<Vec<Expiring>, LedgerError> {
        match self {
            Self::Embedded(ledger) => Ok(ledger.expiring(page)),
            Self::Shared(ledger) => ledger.expiring(page).await,
        }
    }

    /// Some of the accounts whose books do not add up; `None` as long as nobody has looked.
    pub async fn frozen_accounts(&self, limit: usize) -> Result<Option<Vec<String>>, LedgerError> {
        match self {
            Self::Embedded(ledger) => Ok(ledger.frozen_accounts(limit)),
            Self::Shared(ledger) => ledger.frozen_accounts(limit).await.map(Some),
        }
    }
}
