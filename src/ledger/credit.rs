//! One account's credit: what it was granted, what is set aside, what it owes.
//!
//! Pure: no clock, no disk. A hold takes its credit from particular grants, the one that expires
//! first before the others, so that a grant's expiry takes what is free of it and never what a
//! running call was promised, and so that no call is paid from a grant that had expired before it
//! began.

use std::sync::Arc;

mod shortage;
mod shown;
#[cfg(test)]
mod tests;

pub use shortage::Shortage;

use self::shortage::is_covered;
use super::CallId;
use crate::base::{fast_map::FastMap, money::NanoUsd};

#[derive(Clone, Debug, Default)]
pub struct Credit {
    /// In order of use: earliest expiry first, those without one last. What is used up is not kept.
    funds: Vec<Funds>,
    /// Spent beyond every grant; the next one pays it.
    debt: i64,
    holds: FastMap<CallId, Hold>,
    held: i64,
    /// What running calls may cost beyond what they hold.
    exposure: i64,
    /// Set while it was an expiry, and not a call, that left nothing.
    pub(super) lapsed_at: Option<i64>,
    /// The latest time it was asked about. A clock that is set back revives nothing.
    latest: i64,
}

/// What is left of a grant.
#[derive(Clone, Debug)]
pub struct Funds {
    pub grant_id: Arc<str>,
    pub remaining: NanoUsd,
    pub expires_at: Option<i64>,
    held: i64,
}

#[derive(Clone, Debug)]
struct Hold {
    amount: i64,
    /// How much of which grant.
    parts: Vec<(Arc<str>, i64)>,
    /// What the call may cost beyond that.
    risk: i64,
    /// Grants that had not expired by then pay for all of the call.
    admitted_at: i64,
    /// Its charge is being written down; until that is done it can still be undone.
    charged: bool,
}

/// What a change left of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    pub grant_id: Arc<str>,
    pub remaining: NanoUsd,
}

/// What a charge did, to be written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    pub left: Vec<Left>,
    /// What is owed now, where that has changed.
    pub debt: Option<NanoUsd>,
    pub before: NanoUsd,
    pub after: NanoUsd,
}

/// What a grant came to once it had paid the debt, to be written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub remaining: NanoUsd,
    pub debt: NanoUsd,
    pub after: NanoUsd,
}

/// What time has done to an account, to be written down: what was owed is paid from what has become
/// free, and what is free of expired grants is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    pub left: Vec<Left>,
    /// What is owed now, where that has changed.
    pub debt: Option<NanoUsd>,
    pub forfeits: Vec<Forfeit>,
    pub lapsed_at: Option<i64>,
}

/// What an expiry took of a grant, to be written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forfeit {
    pub left: Left,
    pub amount: NanoUsd,
    pub after: NanoUsd,
}

impl Funds {
    pub fn new(grant_id: Arc<str>, remaining: NanoUsd, expires_at: Option<i64>) -> Self {
        Self {
            grant_id,
            remaining,
            expires_at,
            held: 0,
        }
    }

    /// What is left of a grant, and how much of that running calls hold.
    pub fn partly_held(
        grant_id: Arc<str>,
        remaining: NanoUsd,
        expires_at: Option<i64>,
        held: i64,
    ) -> Self {
        Self {
            held,
            ..Self::new(grant_id, remaining, expires_at)
        }
    }

    fn is_live(&self, now: i64) -> bool {
        self.expires_at.is_none_or(|at| at > now)
    }

    fn free(&self) -> i64 {
        self.remaining.nanos() - self.held
    }

    fn take(&mut self, amount: i64) {
        self.remaining = NanoUsd::new(self.remaining.nanos() - amount);
    }

    fn left(&self) -> Left {
        Left {
            grant_id: self.grant_id.clone(),
            remaining: self.remaining,
        }
    }
}

impl Credit {
    /// What an earlier process left behind; `funds` in the order in which they were given.
    pub fn restored(funds: Vec<Funds>, debt: NanoUsd, lapsed_at: Option<i64>) -> Self {
        let mut credit = Self {
            debt: debt.nanos(),
            lapsed_at,
            ..Self::default()
        };
        for funds in funds {
            credit.put(funds);
        }
        credit
    }

    /// An account's credit as it stands elsewhere, to be asked about and not changed: who holds what is not
    /// known here. `funds` are in order of use.
    pub fn as_of(
        funds: Vec<Funds>,
        debt: NanoUsd,
        held: NanoUsd,
        lapsed_at: Option<i64>,
        latest: i64,
    ) -> Self {
        Self {
            funds,
            debt: debt.nanos(),
            held: held.nanos(),
            lapsed_at,
            latest,
            ..Self::default()
        }
    }

    /// What the account has: everything that has not expired or was promised to a running call
    /// before it did, less what is owed.
    pub fn balance(&self, now: i64) -> NanoUsd {
        let now = now.max(self.latest);
        let counted = self.funds.iter().map(|funds| {
            if funds.is_live(now) {
                funds.remaining.nanos()
            } else {
                funds.held
            }
        });
        NanoUsd::new(counted.sum::<i64>() - self.owed(now))
    }

    pub fn held(&self) -> NanoUsd {
        NanoUsd::new(self.held)
    }

    /// What a new call can be paid from: the balance less what is held.
    pub fn available(&self, now: i64) -> NanoUsd {
        let now = now.max(self.latest);
        let live = self.funds.iter().filter(|funds| funds.is_live(now));
        NanoUsd::new(live.map(Funds::free).sum::<i64>() - self.owed(now))
    }

    /// When the credit that is used next expires.
    pub fn expires_at(&self, now: i64) -> Option<i64> {
        let now = now.max(self.latest);
        let mut usable = self.funds.iter().filter(|funds| funds.is_live(now));
        usable.find(|funds| funds.free() > 0)?.expires_at
    }

    /// How many calls have something set aside.
    pub fn open_holds(&self) -> usize {
        self.holds.values().filter(|hold| !hold.charged).count()
    }

    /// Sets `amount` aside for a call that may cost up to `worst`, or changes nothing.
    ///
    /// The difference between the two is what the account may end up owing. The sum of it over
    /// all running calls stays within what is free and `overdraft`.
    pub fn hold(
        &mut self,
        id: CallId,
        amount: NanoUsd,
        worst: NanoUsd,
        overdraft: NanoUsd,
        now: i64,
    ) -> Result<(), Shortage> {
        let now = self.tick(now);
        let exposure = NanoUsd::new(self.exposure);
        if !is_covered(self.available(now), exposure, amount, worst, overdraft) {
            return Err(self.shortage(now));
        }
        let amount = amount.nanos();
        let risk = worst.nanos().saturating_sub(amount).max(0);
        let mut missing = amount;
        let mut parts = Vec::with_capacity(1);
        for funds in self.funds.iter_mut().filter(|funds| funds.is_live(now)) {
            if missing == 0 {
                break;
            }
            set_aside(funds, &mut missing, &mut parts);
        }
        self.exposure += risk;
        self.held += amount;
        let hold = Hold {
            amount,
            parts,
            risk,
            admitted_at: now,
            charged: false,
        };
        self.holds.insert(id, hold);
        Ok(())
    }

    /// Sets more aside for a call that goes on: `amount` and `worst` are for all of it. Refused, it
    /// changes nothing, and the call still has what it had.
    ///
    /// What it holds already stays where it is: of grants, too, that have expired since.
    pub fn extend(
        &mut self,
        id: CallId,
        amount: NanoUsd,
        worst: NanoUsd,
        overdraft: NanoUsd,
        now: i64,
    ) -> Result<(), Shortage> {
        let now = self.tick(now);
        let available = self.available(now).nanos();
        let Some(mut hold) = self.holds.remove(&id) else {
            return Err(self.shortage(now));
        };
        let amount = amount.nanos().max(hold.amount);
        let mut missing = amount - hold.amount;
        let risk = worst.nanos().saturating_sub(amount).max(0);
        let bearable = available
            .saturating_sub(missing)
            .saturating_add(overdraft.nanos());
        let exposure = (self.exposure - hold.risk).saturating_add(risk);
        let refused = (missing > 0 && available < missing) || exposure > bearable;
        if !refused {
            self.held += missing;
            self.exposure = exposure;
            (hold.amount, hold.risk) = (amount, risk);
            for funds in self.funds.iter_mut().filter(|funds| funds.is_live(now)) {
                set_aside(funds, &mut missing, &mut hold.parts);
            }
        }
        self.holds.insert(id, hold);
        if refused {
            Err(self.shortage(now))
        } else {
            Ok(())
        }
    }

    /// Gives back what a call had set aside, unless it was charged. A second time it does nothing.
    ///
    /// Says whether anything was known of it.
    pub fn release(&mut self, id: CallId) -> bool {
        let hold = self.holds.remove(&id);
        if let Some(hold) = hold.as_ref().filter(|hold| !hold.charged) {
            self.give_back(hold);
        }
        hold.is_some()
    }

    /// Lets a call be charged that holds nothing: a process that is gone had delivered it.
    pub fn hold_nothing(&mut self, id: CallId) {
        let admitted_at = self.latest;
        self.holds.entry(id).or_insert_with(|| Hold {
            amount: 0,
            parts: Vec::new(),
            risk: 0,
            admitted_at,
            charged: false,
        });
    }

    /// Charges a call; `None` if nothing is held for it any more.
    ///
    /// It is paid from what the call holds, then from what is free, then on account.
    pub fn charge(&mut self, id: CallId, cost: NanoUsd, now: i64) -> Option<Charge> {
        let now = self.tick(now);
        let hold = self.holds.get_mut(&id).filter(|hold| !hold.charged)?;
        hold.charged = true;
        let hold = hold.clone();
        let (before, debt) = (self.total(), self.debt);
        self.give_back(&hold);
        let mut owed = cost.nanos();
        let mut left = Vec::with_capacity(1);
        for (grant_id, taken) in &hold.parts {
            if let Some(funds) = self.funds_mut(grant_id) {
                draw(funds, *taken, &mut owed, &mut left);
            }
        }
        for funds in self.funds.iter_mut().filter(|funds| funds.is_live(now)) {
            draw(funds, funds.free(), &mut owed, &mut left);
        }
        self.debt += owed;
        self.forget_the_used_up();
        Some(Charge {
            left,
            debt: (self.debt != debt).then_some(NanoUsd::new(self.debt)),
            before,
            after: self.total(),
        })
    }

    /// Adds a grant, which pays what is owed first.
    pub fn grant(&mut self, funds: &Funds) -> Granted {
        let amount = funds.remaining.nanos();
        let paid = self.debt.min(amount);
        self.debt -= paid;
        self.lapsed_at = None;
        let remaining = NanoUsd::new(amount - paid);
        self.put(Funds {
            remaining,
            ..funds.clone()
        });
        Granted {
            remaining,
            debt: NanoUsd::new(self.debt),
            after: self.total(),
        }
    }

    /// Pays what is owed from what is free, the earliest expiry first, and then takes what is free of
    /// grants that have expired and not promised to running calls.
    pub fn bring_up_to_date(&mut self, now: i64) -> Update {
        let now = self.tick(now);
        let (mut owed, mut left) = (self.debt, Vec::new());
        for funds in &mut self.funds {
            draw(funds, funds.free(), &mut owed, &mut left);
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

    /// Has grants that have expired hold what running calls may cost beyond their holds, as far as they reach, so that
    /// they pay for all of the calls that were admitted before.
    fn promise_expired(&mut self, now: i64) {
        let lapsed = |funds: &Funds| !funds.is_live(now) && funds.free() > 0;
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
                set_aside(funds, &mut missing, &mut hold.parts);
                let promised = hold.risk - missing;
                hold.amount += promised;
                hold.risk = missing;
                self.held += promised;
                self.exposure -= promised;
            }
        }
    }

    fn forfeit(&mut self, now: i64) -> Vec<Forfeit> {
        self.promise_expired(now);
        let mut forfeits = Vec::new();
        let mut total = self.total().nanos();
        let lapsed = |funds: &&mut Funds| !funds.is_live(now) && funds.free() > 0;
        for funds in self.funds.iter_mut().filter(lapsed) {
            let amount = funds.free();
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
        self.forget_the_used_up();
        forfeits
    }

    /// Takes over what running calls hold, as far as there are grants to hold it from. What was
    /// being charged is held again: the charge did not come about.
    pub fn take_over_holds(&mut self, before: &Credit) {
        self.latest = self.latest.max(before.latest);
        for (id, hold) in &before.holds {
            let mut missing = hold.amount;
            let mut parts = Vec::new();
            for (grant_id, taken) in &hold.parts {
                if let Some(funds) = self.funds_mut(grant_id) {
                    let mut wanted = *taken;
                    set_aside(funds, &mut wanted, &mut parts);
                    missing -= taken - wanted;
                }
            }
            for funds in &mut self.funds {
                set_aside(funds, &mut missing, &mut parts);
            }
            let amount = hold.amount - missing;
            self.exposure += hold.risk;
            self.held += amount;
            let (risk, admitted_at, charged) = (hold.risk, hold.admitted_at, false);
            self.holds.insert(
                *id,
                Hold {
                    amount,
                    parts,
                    risk,
                    admitted_at,
                    charged,
                },
            );
        }
    }

    /// Everything that remains of all grants, less what is owed: what the books must add up to.
    pub fn total(&self) -> NanoUsd {
        let remaining = self.funds.iter().map(|funds| funds.remaining.nanos());
        NanoUsd::new(remaining.sum::<i64>() - self.debt)
    }

    /// What contradicts itself, if anything does: this is asked in production too.
    pub fn contradiction(&self) -> Option<String> {
        let open = || self.holds.values().filter(|hold| !hold.charged);
        let held: i64 = open().map(|hold| hold.amount).sum();
        let parts: i64 = open()
            .flat_map(|hold| &hold.parts)
            .map(|(_, part)| part)
            .sum();
        let set_aside: i64 = self.funds.iter().map(|funds| funds.held).sum();
        let risk: i64 = open().map(|hold| hold.risk).sum();
        let overdrawn = self.funds.iter().find(|funds| funds.free() < 0);
        if (held, parts, set_aside) != (self.held, self.held, self.held) {
            let said = self.held;
            return Some(format!(
                "{said} nano-dollars are held by count, {held} by calls, {set_aside} by grants"
            ));
        }
        if risk != self.exposure || self.debt < 0 {
            return Some(format!(
                "exposure {} is not {risk}, or the debt {} is below zero",
                self.exposure, self.debt
            ));
        }
        overdrawn.map(|funds| format!("more is held of grant {} than it has", funds.grant_id))
    }

    fn tick(&mut self, now: i64) -> i64 {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// What has not expired, less what is owed.
    fn live_total(&self, now: i64) -> i64 {
        let live = self.funds.iter().filter(|funds| funds.is_live(now));
        live.map(|funds| funds.remaining.nanos()).sum::<i64>() - self.owed(now)
    }

    /// The debt, but for what expired credit pays of it before it is gone.
    fn owed(&self, now: i64) -> i64 {
        let lapsed = self.funds.iter().filter(|funds| !funds.is_live(now));
        let paid = lapsed.map(Funds::free).sum::<i64>();
        (self.debt - paid).max(0)
    }

    /// In its place in the order of use: behind those that expire at the same time or earlier.
    fn put(&mut self, funds: Funds) {
        if funds.remaining.nanos() == 0 {
            return;
        }
        let key = |funds: &Funds| funds.expires_at.unwrap_or(i64::MAX);
        let at = self
            .funds
            .partition_point(|other| key(other) <= key(&funds));
        self.funds.insert(at, funds);
    }

    fn funds_mut(&mut self, grant_id: &Arc<str>) -> Option<&mut Funds> {
        self.funds
            .iter_mut()
            .find(|funds| funds.grant_id == *grant_id)
    }

    fn give_back(&mut self, hold: &Hold) {
        self.exposure -= hold.risk;
        self.held -= hold.amount;
        for (grant_id, taken) in &hold.parts {
            if let Some(funds) = self.funds_mut(grant_id) {
                funds.held -= taken;
            }
        }
    }

    fn forget_the_used_up(&mut self) {
        self.funds.retain(|funds| funds.remaining.nanos() > 0);
    }

    /// Credit that is gone because it expired is another thing than credit that was spent.
    fn shortage(&self, now: i64) -> Shortage {
        let lapsed = || self.funds.iter().filter(|funds| !funds.is_live(now));
        // What goes to pay a debt was spent, and has not expired.
        let lost = lapsed().map(Funds::free).sum::<i64>() > self.debt;
        let at = lapsed().filter_map(|funds| funds.expires_at).max();
        let usable = self.live_total(now);
        Shortage {
            balance: self.balance(now),
            available: self.available(now),
            held: self.held(),
            exposure: NanoUsd::new(self.exposure),
            usable: NanoUsd::new(usable),
            expired_at: at
                .filter(|_| lost)
                .or(self.lapsed_at)
                .filter(|_| usable <= 0),
        }
    }
}

/// Holds as much of these funds as is wanted and free.
fn set_aside(funds: &mut Funds, missing: &mut i64, parts: &mut Vec<(Arc<str>, i64)>) {
    let taken = funds.free().clamp(0, *missing);
    if taken > 0 {
        funds.held += taken;
        parts.push((funds.grant_id.clone(), taken));
        *missing -= taken;
    }
}

/// Pays what is owed from these funds, up to `most`.
fn draw(funds: &mut Funds, most: i64, owed: &mut i64, left: &mut Vec<Left>) {
    let part = most.clamp(0, *owed);
    if part > 0 {
        funds.take(part);
        *owed -= part;
        left.retain(|earlier| earlier.grant_id != funds.grant_id);
        left.push(funds.left());
    }
}
