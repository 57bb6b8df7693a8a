//! One account's credit: grants, holds, charges, debt and budgets.
//!
//! A pure state machine without clock or disk. A hold takes its credit from particular grants, the earliest expiry
//! first. So the expiry of a grant forfeits only its unheld part and never what a running call holds, and no call is
//! paid from a grant that had expired before the call was admitted.

use std::sync::Arc;

mod budgets;
mod display;
mod expiry;
mod shortage;
#[cfg(test)]
mod tests;

pub(crate) use expiry::Update;
pub(crate) use shortage::{Shortage, is_covered};

use super::{
    BudgetShortage, CallId, Payer,
    budgets::{Budgets, Place, Spent},
};
use crate::base::{fast_map::FastMap, money::NanoUsd};

#[derive(Clone, Debug, Default)]
pub(crate) struct Credit {
    /// In order of use: earliest expiry first, those without expiry last. Used-up grants are removed.
    funds: Vec<Funds>,
    /// Charges beyond all grants; the next grant pays it.
    debt: i64,
    holds: FastMap<CallId, Hold>,
    held: i64,
    /// The sum of what running calls may cost beyond their holds.
    exposure: i64,
    /// When the last credit expired, if an expiry and not a call used it up.
    pub(super) lapsed_at: Option<i64>,
    /// The latest time passed in; a clock that is set back does not revive expired credit.
    latest: i64,
    /// The account's ID and its budgets; `None` if it has none.
    budgets: Option<Box<(String, Budgets)>>,
}

/// What a call wants to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub id: CallId,
    pub payer: &'a Arc<Payer>,
    pub amount: NanoUsd,
    /// The most that the call may cost.
    pub worst: NanoUsd,
    pub overdraft: NanoUsd,
}

/// Why a hold was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Short(Shortage),
    /// By these budgets, the narrowest first.
    OverBudget(Vec<BudgetShortage>),
}

/// What is left of a grant.
#[derive(Clone, Debug)]
pub(crate) struct Funds {
    pub grant_id: Arc<str>,
    pub remaining: NanoUsd,
    pub expires_at: Option<i64>,
    held: i64,
}

#[derive(Clone, Debug)]
struct Hold {
    amount: i64,
    /// Grants and the amounts held of them.
    parts: Vec<(Arc<str>, i64)>,
    /// What the call may cost beyond the held amount.
    risk: i64,
    /// Grants that had not expired by then may pay for all of the call.
    admitted_at: i64,
    payer: Arc<Payer>,
    /// What it takes of budgets. More may be held of grants that have expired.
    place: Place,
    /// The charge has been applied and is being committed; until then it can be undone.
    charged: bool,
}

/// What a change left of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub grant_id: Arc<str>,
    pub remaining: NanoUsd,
}

/// The effects of a charge, to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    pub left: Vec<Left>,
    /// The new debt, if it has changed.
    pub debt: Option<NanoUsd>,
    pub before: NanoUsd,
    pub after: NanoUsd,
    /// When the credit was held.
    pub held_at: i64,
    /// What was spent of each budget.
    pub budgets: Vec<Spent>,
}

/// The effects of a grant, after it has paid the debt, to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub remaining: NanoUsd,
    pub debt: NanoUsd,
    pub after: NanoUsd,
}

impl Funds {
    pub(crate) fn new(grant_id: Arc<str>, remaining: NanoUsd, expires_at: Option<i64>) -> Self {
        Self {
            grant_id,
            remaining,
            expires_at,
            held: 0,
        }
    }

    /// As [`Self::new`], with the part that running calls hold.
    pub(crate) fn partly_held(
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

    fn unheld(&self) -> i64 {
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
    /// Restores the state that an earlier process stored; `funds` in the order in which they were granted.
    pub(crate) fn restored(funds: Vec<Funds>, debt: NanoUsd, lapsed_at: Option<i64>) -> Self {
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

    /// A read-only view of an account's credit in a shared store: the individual holds are unknown. `funds` are in
    /// order of use.
    pub(crate) fn as_of(
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

    /// The balance: credit that has not expired, or that a running call holds, less the debt.
    pub(crate) fn balance(&self, now: i64) -> NanoUsd {
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

    pub(crate) fn held(&self) -> NanoUsd {
        NanoUsd::new(self.held)
    }

    /// What a new call can hold: the balance less all holds.
    pub(crate) fn available(&self, now: i64) -> NanoUsd {
        let now = now.max(self.latest);
        let live = self.funds.iter().filter(|funds| funds.is_live(now));
        NanoUsd::new(live.map(Funds::unheld).sum::<i64>() - self.owed(now))
    }

    /// When the credit that is used next expires.
    pub(crate) fn expires_at(&self, now: i64) -> Option<i64> {
        let now = now.max(self.latest);
        let mut usable = self.funds.iter().filter(|funds| funds.is_live(now));
        usable.find(|funds| funds.unheld() > 0)?.expires_at
    }

    /// How many holds are open.
    pub(crate) fn open_holds(&self) -> usize {
        self.holds.values().filter(|hold| !hold.charged).count()
    }

    /// Holds `amount` for a call that may cost up to `worst`, or refuses and changes nothing.
    ///
    /// The difference of the two is the call's risk, which the account may end up owing. The sum of the risks of all
    /// running calls stays within the available credit plus `overdraft`. The same holds for each budget.
    pub(crate) fn hold(&mut self, wanted: Wanted<'_>, now: i64) -> Result<(), Refused> {
        let now = self.tick(now);
        let exposure = NanoUsd::new(self.exposure);
        let Wanted {
            amount,
            worst,
            overdraft,
            ..
        } = wanted;
        if !is_covered(self.available(now), exposure, amount, worst, overdraft) {
            return Err(Refused::Short(self.shortage(now)));
        }
        let place = wanted.place(now);
        self.take_of_budgets(&wanted, &Place::default(), &place)?;
        let (amount, risk) = (place.amount, place.risk);
        let mut missing = amount;
        let mut parts = Vec::with_capacity(1);
        for funds in self.funds.iter_mut().filter(|funds| funds.is_live(now)) {
            if missing == 0 {
                break;
            }
            hold_part(funds, &mut missing, &mut parts);
        }
        self.exposure += risk;
        self.held += amount;
        let hold = Hold {
            amount,
            parts,
            risk,
            admitted_at: now,
            payer: wanted.payer.clone(),
            place,
            charged: false,
        };
        self.holds.insert(wanted.id, hold);
        Ok(())
    }

    /// Raises the hold of a call for its next step; the amounts are for the whole call. If it is refused, nothing changes
    /// and the call keeps its hold.
    ///
    /// Credit that the call holds already stays held, also of grants that have expired since. In budgets the whole call
    /// counts from now on in the present period.
    pub(crate) fn extend(&mut self, wanted: Wanted<'_>, now: i64) -> Result<(), Refused> {
        let now = self.tick(now);
        let available = self.available(now).nanos();
        let Some(mut hold) = self.holds.remove(&wanted.id) else {
            return Err(Refused::Short(self.shortage(now)));
        };
        let extended = self.extended(&mut hold, &wanted, available, now);
        self.holds.insert(wanted.id, hold);
        extended
    }

    fn extended(
        &mut self,
        hold: &mut Hold,
        wanted: &Wanted<'_>,
        available: i64,
        now: i64,
    ) -> Result<(), Refused> {
        let amount = wanted.amount.nanos().max(hold.amount);
        let mut missing = amount - hold.amount;
        let risk = wanted.worst.nanos().saturating_sub(amount).max(0);
        let bearable = available
            .saturating_sub(missing)
            .saturating_add(wanted.overdraft.nanos());
        let exposure = (self.exposure - hold.risk).saturating_add(risk);
        if (missing > 0 && available < missing) || exposure > bearable {
            return Err(Refused::Short(self.shortage(now)));
        }
        // Not what expired grants have added to the hold.
        let in_budgets = NanoUsd::new(wanted.amount.nanos().max(hold.place.amount));
        let in_budgets = Wanted {
            amount: in_budgets,
            ..*wanted
        };
        let place = in_budgets.place(now);
        self.take_of_budgets(wanted, &hold.place, &place)?;
        self.held += missing;
        self.exposure = exposure;
        (hold.amount, hold.risk, hold.place) = (amount, risk, place);
        for funds in self.funds.iter_mut().filter(|funds| funds.is_live(now)) {
            hold_part(funds, &mut missing, &mut hold.parts);
        }
        Ok(())
    }

    /// Releases the hold of a call, unless it was charged. Repeating it has no effect.
    ///
    /// Returns whether there was a hold, open or charged.
    pub(crate) fn release(&mut self, id: CallId) -> bool {
        let hold = self.holds.remove(&id);
        if let Some(hold) = hold.as_ref().filter(|hold| !hold.charged) {
            self.release_parts(hold);
        }
        hold.is_some()
    }

    /// Adds an empty hold, so that a call can be charged that an earlier process delivered. Budgets count it where it was
    /// admitted, but not in a time to come.
    pub(crate) fn hold_nothing(
        &mut self,
        id: CallId,
        payer: &Arc<Payer>,
        admitted_at: i64,
        now: i64,
    ) {
        let latest = self.tick(now);
        let place = Place {
            held_at: admitted_at.min(latest),
            ..Place::default()
        };
        self.holds.entry(id).or_insert_with(|| Hold {
            amount: 0,
            parts: Vec::new(),
            risk: 0,
            admitted_at: latest,
            payer: payer.clone(),
            place,
            charged: false,
        });
    }

    /// Charges a call; `None` if it has no open hold.
    ///
    /// The cost is taken from the hold, then from available credit; the rest becomes debt.
    pub(crate) fn charge(&mut self, id: CallId, cost: NanoUsd, now: i64) -> Option<Charge> {
        let now = self.tick(now);
        let hold = self.holds.get_mut(&id).filter(|hold| !hold.charged)?;
        hold.charged = true;
        let hold = hold.clone();
        let (before, debt) = (self.total(), self.debt);
        self.release_parts(&hold);
        let mut owed = cost.nanos();
        let mut left = Vec::with_capacity(1);
        for (grant_id, taken) in &hold.parts {
            if let Some(funds) = self.funds_mut(grant_id) {
                draw(funds, *taken, &mut owed, &mut left);
            }
        }
        for funds in self.funds.iter_mut().filter(|funds| funds.is_live(now)) {
            draw(funds, funds.unheld(), &mut owed, &mut left);
        }
        self.debt += owed;
        self.remove_used_up();
        let held_at = hold.place.held_at;
        let budgets = self.budgets.as_deref_mut();
        let budgets = budgets.map(|(account_id, budgets)| {
            budgets.spend(account_id, &hold.payer, held_at, cost.nanos())
        });
        Some(Charge {
            left,
            debt: (self.debt != debt).then_some(NanoUsd::new(self.debt)),
            before,
            after: self.total(),
            held_at,
            budgets: budgets.unwrap_or_default(),
        })
    }

    /// Adds a grant, which pays the debt first.
    pub(crate) fn grant(&mut self, funds: &Funds) -> Granted {
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

    /// Copies the holds of running calls from an earlier state, as far as there are grants to hold from. Charged holds
    /// are open again: their charge was not committed.
    pub(crate) fn take_over_holds(&mut self, before: &Credit) {
        self.latest = self.latest.max(before.latest);
        for (id, hold) in &before.holds {
            let mut missing = hold.amount;
            let mut parts = Vec::new();
            for (grant_id, taken) in &hold.parts {
                if let Some(funds) = self.funds_mut(grant_id) {
                    let mut part = *taken;
                    hold_part(funds, &mut part, &mut parts);
                    missing -= taken - part;
                }
            }
            for funds in &mut self.funds {
                hold_part(funds, &mut missing, &mut parts);
            }
            let amount = hold.amount - missing;
            self.exposure += hold.risk;
            self.held += amount;
            if let Some((account_id, budgets)) = self.budgets.as_deref_mut() {
                budgets.count(account_id, &hold.payer, &hold.place);
            }
            self.holds.insert(
                *id,
                Hold {
                    amount,
                    parts,
                    charged: false,
                    ..hold.clone()
                },
            );
        }
    }

    /// The present time, by the account's clock.
    pub(crate) fn present(&self, now: i64) -> i64 {
        now.max(self.latest)
    }

    /// The sum of what is left of all grants, less the debt. It must equal the sum of the account's entries.
    pub(crate) fn total(&self) -> NanoUsd {
        let remaining = self.funds.iter().map(|funds| funds.remaining.nanos());
        NanoUsd::new(remaining.sum::<i64>() - self.debt)
    }

    /// Describes an internal inconsistency, if there is one; checked in production too.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let open = || self.holds.values().filter(|hold| !hold.charged);
        let held: i64 = open().map(|hold| hold.amount).sum();
        let parts: i64 = open()
            .flat_map(|hold| &hold.parts)
            .map(|(_, part)| part)
            .sum();
        let by_grants: i64 = self.funds.iter().map(|funds| funds.held).sum();
        let risk: i64 = open().map(|hold| hold.risk).sum();
        let overdrawn = self.funds.iter().find(|funds| funds.unheld() < 0);
        if (held, parts, by_grants) != (self.held, self.held, self.held) {
            let counted = self.held;
            return Some(format!(
                "{counted} nano-dollars are held by count, {held} by calls, {by_grants} by grants"
            ));
        }
        if risk != self.exposure || self.debt < 0 {
            return Some(format!(
                "exposure {} is not {risk}, or the debt {} is below zero",
                self.exposure, self.debt
            ));
        }
        let overdrawn =
            overdrawn.map(|funds| format!("more is held of grant {} than it has", funds.grant_id));
        overdrawn.or_else(|| self.contradiction_of_budgets())
    }

    fn tick(&mut self, now: i64) -> i64 {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Credit that has not expired, less the debt.
    fn live_total(&self, now: i64) -> i64 {
        let live = self.funds.iter().filter(|funds| funds.is_live(now));
        live.map(|funds| funds.remaining.nanos()).sum::<i64>() - self.owed(now)
    }

    /// The debt, less what expired credit will pay of it before it is forfeited.
    fn owed(&self, now: i64) -> i64 {
        let lapsed = self.funds.iter().filter(|funds| !funds.is_live(now));
        let paid = lapsed.map(Funds::unheld).sum::<i64>();
        (self.debt - paid).max(0)
    }

    /// Inserts funds in order of use: after those that expire earlier or at the same time.
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

    fn release_parts(&mut self, hold: &Hold) {
        self.exposure -= hold.risk;
        self.held -= hold.amount;
        if let Some((account_id, budgets)) = self.budgets.as_deref_mut() {
            budgets.release(account_id, &hold.payer, &hold.place);
        }
        for (grant_id, taken) in &hold.parts {
            if let Some(funds) = self.funds_mut(grant_id) {
                funds.held -= taken;
            }
        }
    }

    fn remove_used_up(&mut self) {
        self.funds.retain(|funds| funds.remaining.nanos() > 0);
    }

    /// The shortage to report; it distinguishes credit that has expired from credit that was spent.
    fn shortage(&self, now: i64) -> Shortage {
        let lapsed = || self.funds.iter().filter(|funds| !funds.is_live(now));
        // Expired credit that will pay a debt counts as spent.
        let lost = lapsed().map(Funds::unheld).sum::<i64>() > self.debt;
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

impl Wanted<'_> {
    fn place(&self, now: i64) -> Place {
        let amount = self.amount.nanos();
        Place {
            amount,
            risk: self.worst.nanos().saturating_sub(amount).max(0),
            held_at: now,
        }
    }
}

/// Holds up to `missing` of these funds, as far as they are not held.
fn hold_part(funds: &mut Funds, missing: &mut i64, parts: &mut Vec<(Arc<str>, i64)>) {
    let taken = funds.unheld().clamp(0, *missing);
    if taken > 0 {
        funds.held += taken;
        parts.push((funds.grant_id.clone(), taken));
        *missing -= taken;
    }
}

/// Pays `owed` from these funds, up to `most`.
fn draw(funds: &mut Funds, most: i64, owed: &mut i64, left: &mut Vec<Left>) {
    let part = most.clamp(0, *owed);
    if part > 0 {
        funds.take(part);
        *owed -= part;
        left.retain(|earlier| earlier.grant_id != funds.grant_id);
        left.push(funds.left());
    }
}
