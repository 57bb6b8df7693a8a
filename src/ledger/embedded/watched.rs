//! Queries for alerts, from memory: expiring credit and frozen accounts.

use super::Embedded;
use crate::ledger::{Expiring, ExpiringPage};

impl Embedded {
    /// A page of credit that expires soon, ordered by time and grant.
    pub(crate) fn expiring(&self, page: &ExpiringPage) -> Vec<Expiring> {
        let mut found = self.read().expiring(page.from, page.until);
        found.retain(|one| {
            let position = (one.expires_at, &one.grant_id);
            page.after
                .as_ref()
                .is_none_or(|(at, id)| position > (*at, id))
        });
        found.sort_by(|one, other| {
            (one.expires_at, &one.grant_id).cmp(&(other.expires_at, &other.grant_id))
        });
        found.truncate(page.limit);
        found
    }

    /// The first frozen accounts by ID; `None` before the first audit.
    pub(crate) fn frozen_accounts(&self, limit: usize) -> Option<Vec<String>> {
        let mut accounts = self.read().frozen_accounts()?;
        accounts.sort_unstable();
        accounts.truncate(limit);
        Some(accounts)
    }
}
