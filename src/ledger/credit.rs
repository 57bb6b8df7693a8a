//! One account's credit: what it was granted, what is set aside, what it owes.
//!
//! Pure: no clock, no disk. A hold takes its credit from particular grants, the one that expires
//! first before the others, so that a grant's expiry takes what is free of it and never what a
//! running call was promised, and so that no call is paid from a grant that had expired before it
//! began.

use std::collections::HashMap;

use crate::money::NanoUsd;

/// A number of ours for a call that is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HoldId(pub u64);

#[derive(Clone, Debug, Default)]
pub struct Credit {
    /// In the order in which they were given.
    grants: Vec<Funds>,
    /// Spent beyond every grant; the next one pays it.
    debt: i64,
    holds: HashMap<HoldId, Hold>,
    /// What running calls may cost beyond what they hold.
    exposure: i64,
}

/// What is left of a grant.
#[derive(Clone, Debug)]
pub struct Funds {
    pub grant_id: String,
    pub remaining: NanoUsd,
    pub expires_at: Option<i64>,
    held: i64,
}

#[derive(Clone, Debug)]
struct Hold {
    amount: i64,
    /// How much of which grant.
    parts: Vec<(usize, i64)>,
    risk: i64,
}

/// Why a call cannot be paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The balance is too low.
    Insufficient { balance: NanoUsd },
    /// There was credit, and it has expired.
    Expired { balance: NanoUsd, at: i64 },
}

/// What a charge does to the grants, worked out before it is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    pub hold: HoldId,
    pub cost: NanoUsd,
    /// What remains of each grant that is drawn on.
    pub remaining: Vec<(String, NanoUsd)>,
    pub debt: NanoUsd,
    pub balance_before: NanoUsd,
    pub balance_after: NanoUsd,
}

impl Funds {
    pub fn new(grant_id: String, remaining: NanoUsd, expires_at: Option<i64>) -> Self {
        Self {
            grant_id,
            remaining,
            expires_at,
            held: 0,
        }
    }

    fn is_live(&self, now: i64) -> bool {
        self.expires_at.is_none_or(|at| at > now)
    }

    fn free(&self) -> i64 {
        self.remaining.nanos() - self.held
    }
}

impl Credit {
    /// What an earlier process left behind.
    pub fn restored(grants: Vec<Funds>, debt: NanoUsd) -> Self {
        Self {
            grants,
            debt: debt.nanos(),
            ..Self::default()
        }
    }

    /// Everything that has not expired, less what is owed.
    pub fn balance(&self, now: i64) -> NanoUsd {
        let live = self.grants.iter().filter(|funds| funds.is_live(now));
        let remaining: i64 = live.map(|funds| funds.remaining.nanos()).sum();
        NanoUsd::new(remaining - self.debt)
    }

    pub fn held(&self) -> NanoUsd {
        NanoUsd::new(self.holds.values().map(|hold| hold.amount).sum())
    }

    /// What a new call can be paid from.
    pub fn available(&self, now: i64) -> NanoUsd {
        let live = self.grants.iter().filter(|funds| funds.is_live(now));
        NanoUsd::new(live.map(Funds::free).sum::<i64>() - self.debt)
    }

    /// When the credit that is used next expires.
    pub fn expires_at(&self, now: i64) -> Option<i64> {
        let next = self.in_order_of_use(now).into_iter();
        let mut next = next.filter(|at| self.grants[*at].free() > 0);
        next.next().and_then(|at| self.grants[at].expires_at)
    }

    /// Sets `amount` aside for a call that may cost up to `worst`, or changes nothing.
    ///
    /// The difference between the two is what the account may end up owing. The sum of it over
    /// all running calls stays within what is free and `overdraft`.
    pub fn hold(
        &mut self,
        id: HoldId,
        amount: NanoUsd,
        worst: NanoUsd,
        overdraft: NanoUsd,
        now: i64,
    ) -> Result<(), Shortage> {
        let (amount, available) = (amount.nanos(), self.available(now).nanos());
        let risk = worst.nanos().saturating_sub(amount).max(0);
        let bearable = available
            .saturating_sub(amount)
            .saturating_add(overdraft.nanos());
        if available <= 0 || available < amount || self.exposure.saturating_add(risk) > bearable {
            return Err(self.shortage(now));
        }
        let mut missing = amount;
        let mut parts = Vec::new();
        for at in self.in_order_of_use(now) {
            let taken = self.grants[at].free().clamp(0, missing);
            if taken > 0 {
                self.grants[at].held += taken;
                parts.push((at, taken));
                missing -= taken;
            }
        }
        self.exposure += risk;
        self.holds.insert(
            id,
            Hold {
                amount,
                parts,
                risk,
            },
        );
        Ok(())
    }

    /// Gives back what a call had set aside. A second time it does nothing.
    pub fn release(&mut self, id: HoldId) {
        let Some(hold) = self.holds.remove(&id) else {
            return;
        };
        self.exposure -= hold.risk;
        for (at, taken) in hold.parts {
            self.grants[at].held -= taken;
        }
    }

    /// What charging `cost` for a call would do; `None` if nothing is held for it any more.
    ///
    /// It is paid from what the call holds, then from what is free, then on account.
    pub fn plan_charge(&self, id: HoldId, cost: NanoUsd, now: i64) -> Option<Charge> {
        let hold = self.holds.get(&id)?;
        let mut left = cost.nanos();
        let mut drawn: HashMap<usize, i64> = HashMap::new();
        for (at, taken) in &hold.parts {
            let part = left.min(*taken);
            *drawn.entry(*at).or_default() += part;
            left -= part;
        }
        for at in self.in_order_of_use(now) {
            let part = left.min(self.grants[at].free().max(0));
            *drawn.entry(at).or_default() += part;
            left -= part;
        }
        let remaining = drawn
            .into_iter()
            .filter(|(_, part)| *part > 0)
            .map(|(at, part)| {
                let funds = &self.grants[at];
                let remaining = NanoUsd::new(funds.remaining.nanos() - part);
                (funds.grant_id.clone(), remaining)
            });
        let balance_before = self.balance(now);
        Some(Charge {
            hold: id,
            cost,
            remaining: remaining.collect(),
            debt: NanoUsd::new(self.debt + left),
            balance_before,
            balance_after: NanoUsd::new(balance_before.nanos() - cost.nanos()),
        })
    }

    /// Carries a charge out, once it is written down.
    pub fn apply(&mut self, charge: &Charge) {
        self.release(charge.hold);
        for (grant_id, remaining) in &charge.remaining {
            let mut grants = self.grants.iter_mut();
            if let Some(funds) = grants.find(|funds| funds.grant_id == *grant_id) {
                funds.remaining = *remaining;
            }
        }
        self.debt = charge.debt.nanos();
    }

    /// What a new grant of `amount` is worth once it has paid the debt: what remains of it, and of
    /// the debt.
    pub fn plan_grant(&self, amount: NanoUsd) -> (NanoUsd, NanoUsd) {
        let paid = self.debt.min(amount.nanos());
        (
            NanoUsd::new(amount.nanos() - paid),
            NanoUsd::new(self.debt - paid),
        )
    }

    pub fn add(&mut self, funds: Funds, debt: NanoUsd) {
        self.grants.push(funds);
        self.debt = debt.nanos();
    }

    /// Takes over what running calls hold, as far as there are grants to hold it from.
    pub fn take_over_holds(&mut self, before: Credit) {
        for (id, hold) in before.holds {
            let mut missing = hold.amount;
            let mut parts = Vec::new();
            for at in self.in_order_of_use(i64::MIN) {
                let taken = self.grants[at].free().clamp(0, missing);
                self.grants[at].held += taken;
                missing -= taken;
                parts.push((at, taken));
            }
            self.exposure += hold.risk;
            self.holds.insert(id, Hold { parts, ..hold });
        }
    }

    /// Live grants, earliest expiry first, those without one last.
    fn in_order_of_use(&self, now: i64) -> Vec<usize> {
        let live = self.grants.iter().enumerate();
        let live = live.filter(|(_, funds)| funds.is_live(now) && funds.remaining.nanos() > 0);
        let mut order: Vec<usize> = live.map(|(at, _)| at).collect();
        order.sort_by_key(|at| (self.grants[*at].expires_at.unwrap_or(i64::MAX), *at));
        order
    }

    /// Credit that is gone because it expired is another thing than credit that was spent.
    fn shortage(&self, now: i64) -> Shortage {
        let balance = self.balance(now);
        let lapsed = self
            .grants
            .iter()
            .filter(|funds| !funds.is_live(now) && funds.free() > 0);
        match lapsed.filter_map(|funds| funds.expires_at).max() {
            Some(at) if balance.nanos() <= 0 => Shortage::Expired { balance, at },
            _ => Shortage::Insufficient { balance },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usd(nanos: i64) -> NanoUsd {
        NanoUsd::new(nanos)
    }

    fn credit(grants: &[(i64, Option<i64>)]) -> Credit {
        let funds = grants.iter().enumerate().map(|(at, (amount, expires_at))| {
            Funds::new(format!("g{at}"), usd(*amount), *expires_at)
        });
        Credit::restored(funds.collect(), usd(0))
    }

    fn charge(credit: &mut Credit, id: u64, cost: i64, now: i64) -> Charge {
        let charge = credit.plan_charge(HoldId(id), usd(cost), now).unwrap();
        credit.apply(&charge);
        charge
    }

    #[test]
    fn the_grant_that_expires_first_is_used_first() {
        let mut credit = credit(&[(100, None), (50, Some(20)), (50, Some(10))]);
        assert_eq!(credit.expires_at(0), Some(10));
        credit.hold(HoldId(1), usd(70), usd(70), usd(0), 0).unwrap();
        assert_eq!(credit.expires_at(0), Some(20));
        let charge = charge(&mut credit, 1, 60, 0);
        let mut remaining = charge.remaining;
        remaining.sort();
        assert_eq!(remaining, [("g1".into(), usd(40)), ("g2".into(), usd(0))]);
        assert_eq!((credit.balance(0), credit.held()), (usd(140), usd(0)));
    }

    #[test]
    fn expiry_takes_what_is_free_and_never_what_is_held() {
        let mut credit = credit(&[(100, Some(10))]);
        credit.hold(HoldId(1), usd(60), usd(60), usd(0), 9).unwrap();
        assert_eq!(credit.available(10), usd(0), "the rest has expired");
        assert_eq!(
            credit.hold(HoldId(2), usd(1), usd(1), usd(0), 10),
            Err(Shortage::Expired {
                balance: usd(0),
                at: 10
            }),
        );
        let charge = charge(&mut credit, 1, 60, 11);
        assert_eq!(charge.debt, usd(0), "what was promised pays");
    }

    #[test]
    fn what_costs_more_than_it_held_is_owed_and_the_next_grant_pays_it() {
        let mut credit = credit(&[(100, None)]);
        credit
            .hold(HoldId(1), usd(100), usd(180), usd(80), 0)
            .unwrap();
        charge(&mut credit, 1, 130, 0);
        assert_eq!(credit.balance(0), usd(-30));
        assert_eq!(
            credit.hold(HoldId(2), usd(0), usd(0), usd(80), 0),
            Err(Shortage::Insufficient { balance: usd(-30) }),
        );
        let (remaining, debt) = credit.plan_grant(usd(50));
        credit.add(Funds::new("new".into(), remaining, None), debt);
        assert_eq!((credit.balance(0), credit.available(0)), (usd(20), usd(20)));
    }

    #[test]
    fn what_may_be_owed_is_bounded() {
        let mut credit = credit(&[(100, None)]);
        credit
            .hold(HoldId(1), usd(10), usd(100), usd(50), 0)
            .unwrap();
        let refused = credit.hold(HoldId(2), usd(10), usd(100), usd(50), 0);
        assert_eq!(refused, Err(Shortage::Insufficient { balance: usd(100) }));
        credit.release(HoldId(1));
        credit.release(HoldId(1));
        assert_eq!(credit.available(0), usd(100));
        credit
            .hold(HoldId(2), usd(10), usd(100), usd(50), 0)
            .unwrap();
    }

    proptest! {
        /// After any order of events the books balance: what was granted is what is left, what was
        /// spent and what has expired, less what is owed; and nothing is held twice.
        #[test]
        fn the_books_balance(
            grants in prop::collection::vec((1_i64..1_000, prop::option::of(1_i64..60)), 0..5),
            events in prop::collection::vec((0_u64..8, 0_i64..400, 0_i64..500, 0_u8..3), 0..60),
        ) {
            let mut credit = credit(&grants);
            let granted: i64 = grants.iter().map(|(amount, _)| amount).sum();
            let (mut spent, mut open) = (0, std::collections::HashMap::new());
            for (now, (id, amount, cost, what)) in (0_i64..).zip(events) {
                let hold = HoldId(id);
                match what {
                    0 if !open.contains_key(&id) => {
                        let available = credit.available(now);
                        let held = credit.hold(hold, usd(amount), usd(amount), usd(0), now);
                        prop_assert_eq!(held.is_ok(), available.nanos() > 0 && available.nanos() >= amount);
                        if held.is_ok() {
                            open.insert(id, amount);
                            prop_assert!(credit.available(now).nanos() >= 0);
                        }
                    }
                    1 => {
                        if let Some(charge) = credit.plan_charge(hold, usd(cost), now) {
                            credit.apply(&charge);
                            spent += cost;
                            open.remove(&id);
                        }
                        prop_assert_eq!(credit.plan_charge(hold, usd(cost), now), None);
                    }
                    _ => {
                        credit.release(hold);
                        open.remove(&id);
                    }
                }
                let remaining: i64 = credit.grants.iter().map(|funds| funds.remaining.nanos()).sum();
                prop_assert_eq!(granted, remaining + spent - credit.debt);
                prop_assert_eq!(credit.held().nanos(), open.values().sum::<i64>());
                for funds in &credit.grants {
                    prop_assert!(funds.held >= 0 && funds.held <= funds.remaining.nanos());
                }
            }
        }
    }
}
