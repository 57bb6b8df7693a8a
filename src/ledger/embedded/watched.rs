//! What is watched, from the copy in memory.

use super::Embedded;
use crate::ledger::{Expiring, ExpiringPage};

impl Embedded {
    pub fn expiring(&self, page: &ExpiringPage) -> Vec<Expiring> {
        let mut found = self.read().expiring(page.from, page.until);
        found.retain(|one| {
            let place = (one.expires_at, &one.grant_id);
            page.after.as_ref().is_none_or(|(at, id)| place > (*at, id))
        });
        found.sort_by(|one, other| {
            (one.expires_at, &one.grant_id).cmp(&(other.expires_at, &other.grant_id))
        });
        found.truncate(page.limit);
        found
    }

    pub fn frozen_accounts(&self, limit: usize) -> Option<Vec<String>> {
        let mut accounts = self.read().frozen_accounts()?;
        accounts.sort_unstable();
        accounts.truncate(limit);
        Some(accounts)
    }
}
