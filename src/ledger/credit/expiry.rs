//! What time does to credit: debt is paid from what was released, and expired grants are forfeited, but for what running
//! calls may still cost.

use super::{Credit, Funds, Left, draw, hold_part};
use crate::base::money::NanoUsd;

/// The effects of time passing, to be stored: debt paid from credit that was released, and the forfeits of expired
/// grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Update {
    pub left: Vec<Left>,
    /// The new debt, if it has changed.
    pub debt: Option<NanoUsd>,
    pub forfeits: Vec<Forfeit>,
    pub lapsed_at: Option<i64>,
}

/// The part of a grant that was forfeited by its expiry, to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forfeit {
    pub left: Left,
    pub amount: NanoUsd,
    pub after: NanoUsd,
}

impl Credit {
    /// Pays debt from credit that is not held, the earliest expiry first, then forfeits what expired grants have left
    /// and running calls do not hold.
    pub(crate) fn bring_up_to_date(&mut self, now: i64) -> Update {
        let now = self.tick(now);
        let (mut owed, mut left) = (self.debt, Vec::new());
        for funds in &mut self.funds {
            draw(funds, funds.unheld(), &mut owed, &mut left);
        }
        let debt = (owed != self.debt).then_some(NanoUsd::new(owed));
        self.debt = owed;
        let forfeits = self.forfeit(now);
        Update {
            left,
            debt,
            forfeits,
            lapsed_at: self.lapsed_at,
        }
    }

    /// Extends the holds of running calls to cover their risks, as far as expired grants reach, so that these grants
    /// pay for all of the calls that were admitted before they expired.
    fn hold_expired(&mut self, now: i64) {
        let lapsed = |funds: &Funds| !funds.is_live(now) && funds.unheld() > 0;
        if self.exposure == 0 || !self.funds.iter().any(lapsed) {
            return;
        }
        let running = self.holds.iter_mut().filter(|(_, hold)| !hold.charged);
        let mut running: Vec<_> = running.collect();
        running.sort_unstable_by_key(|(id, _)| **id);
        for funds in self.funds.iter_mut().filter(|funds| lapsed(funds)) {
            let until = funds.expires_at.unwrap_or(i64::MAX);
            for (_, hold) in running.iter_mut().filter(|it| it.1.admitted_at < until) {
                let mut missing = hold.risk;
                hold_part(funds, &mut missing, &mut hold.parts);
                let added = hold.risk - missing;
                hold.amount += added;
                hold.risk = missing;
                self.held += added;
                self.exposure -= added;
            }
        }
    }

    fn forfeit(&mut self, now: i64) -> Vec<Forfeit> {
        self.hold_expired(now);
        let mut forfeits = Vec::new();
        let mut total = self.total().nanos();
        let lapsed = |funds: &&mut Funds| !funds.is_live(now) && funds.unheld() > 0;
        for funds in self.funds.iter_mut().filter(lapsed) {
            let amount = funds.unheld();
            funds.take(amount);
            total -= amount;
            self.lapsed_at = self.lapsed_at.max(funds.expires_at);
            forfeits.push(Forfeit {
                left: funds.left(),
                amount: NanoUsd::new(amount),
                after: NanoUsd::new(total),
            });
        }
        if self.live_total(now) > 0 {
            self.lapsed_at = None;
        }
        self.remove_used_up();
        forfeits
    }
}
