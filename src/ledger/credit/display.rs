//! Balances and remaining grants for display.

use super::{Credit, draw};
use crate::{
    base::money::NanoUsd,
    ledger::{Balances, GrantLeft},
};

impl Credit {
    pub(crate) fn balances(&self, now: i64) -> Balances {
        Balances {
            balance: self.balance(now),
            held: self.held(),
            available: self.available(now),
            expires_at: self.expires_at(now),
        }
    }

    /// Grants that expire within these times, earliest first: ID, what is left, and expiry.
    pub(crate) fn expiring(
        &self,
        from: i64,
        until: i64,
    ) -> impl Iterator<Item = (&str, NanoUsd, i64)> {
        let funds = self.funds.iter();
        let dated = funds.filter_map(|funds| Some((funds, funds.expires_at?)));
        // Funds are in order of expiry, so for most accounts this stops at the first.
        let soon = dated.take_while(move |(_, at)| *at <= until);
        soon.filter(move |(_, at)| *at > from)
            .map(|(funds, at)| (&*funds.grant_id, funds.remaining, at))
    }

    /// What is left of each grant that has not expired, in order of use, after the debt is paid.
    pub(crate) fn grants_left(&self, now: i64) -> Vec<GrantLeft> {
        let now = now.max(self.latest);
        let (mut funds, mut owed) = (self.funds.clone(), self.debt);
        for one in &mut funds {
            draw(one, one.unheld(), &mut owed, &mut Vec::new());
        }
        let left = funds.into_iter().filter(|funds| funds.is_live(now));
        left.filter(|funds| funds.remaining.nanos() > 0)
            .map(|funds| GrantLeft {
                grant_id: funds.grant_id.to_string(),
                left: funds.remaining,
                held: NanoUsd::new(funds.held),
                expires_at: funds.expires_at,
            })
            .collect()
    }
}
