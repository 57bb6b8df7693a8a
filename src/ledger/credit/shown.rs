//! An account's credit as it is shown.

use super::{Credit, draw};
use crate::{
    ledger::{Balances, GrantLeft},
    money::NanoUsd,
};

impl Credit {
    pub fn balances(&self, now: i64) -> Balances {
        Balances {
            balance: self.balance(now),
            held: self.held(),
            available: self.available(now),
            expires_at: self.expires_at(now),
        }
    }

    /// What is left of each grant that has not expired, in the order of use, once what is owed is paid.
    pub fn grants_left(&self, now: i64) -> Vec<GrantLeft> {
        let now = now.max(self.latest);
        let (mut funds, mut owed) = (self.funds.clone(), self.debt);
        for one in &mut funds {
            draw(one, one.free(), &mut owed, &mut Vec::new());
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
