//! The budgets of one account in memory, with what counts against each. A part of the account's credit, whose lock
//! protects them.

use std::sync::Arc;

use super::{Bounds, Budget, BudgetScope, BudgetShortage, BudgetState, narrowest_first};
use crate::{
    base::{fast_map::FastMap, money::NanoUsd},
    ledger::{DEFAULT_PROJECT, Payer},
};

/// The budgets of an account, by what they stand at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets(FastMap<String, Vec<Counted>>);

/// A budget with what counts against it in its present period.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub budget: Arc<Budget>,
    pub starts_at: i64,
    /// The greatest number stands for no end.
    pub ends_at: i64,
    pub spent: i64,
    pub held: i64,
    pub exposure: i64,
}

/// What a call takes of the budgets above it while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub amount: i64,
    /// What the call may cost beyond the amount.
    pub risk: i64,
    /// When it was taken, by the account's clock: this decides the period.
    pub held_at: i64,
}

/// What a charge left of a budget, to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spent {
    pub budget: Arc<Budget>,
    pub starts_at: i64,
    pub nanos: i64,
}

impl Counted {
    /// A budget as the store has it, without holds.
    pub(crate) fn restored(budget: Arc<Budget>, starts_at: i64, spent: i64) -> Self {
        let period = budget.period_at(starts_at);
        Self {
            budget,
            starts_at: period.starts_at,
            ends_at: period.ends_at.unwrap_or(i64::MAX),
            spent,
            held: 0,
            exposure: 0,
        }
    }

    /// Begins the period that this time is in, unless it has begun.
    fn turn_to(&mut self, now: i64) {
        if now >= self.ends_at {
            let Bounds { starts_at, ends_at } = self.budget.period_at(now);
            (self.starts_at, self.ends_at) = (starts_at, ends_at.unwrap_or(i64::MAX));
            // What runs is counted where it was held.
            (self.spent, self.held, self.exposure) = (0, 0, 0);
        }
    }

    fn counts(&self, held_at: i64) -> bool {
        held_at >= self.starts_at
    }

    /// Counts what a running call has taken, of which the store does not know.
    pub(crate) fn count(&mut self, place: &Place) {
        self.turn_to(place.held_at);
        self.add(place);
    }

    fn add(&mut self, place: &Place) {
        if self.counts(place.held_at) {
            self.held += place.amount;
            self.exposure += place.risk;
        }
    }

    fn remove(&mut self, place: &Place) {
        if self.counts(place.held_at) {
            self.held -= place.amount;
            self.exposure -= place.risk;
        }
    }

    /// Counts the cost of a call that was held at this time.
    pub(crate) fn spend(&mut self, held_at: i64, cost: i64) {
        self.turn_to(held_at);
        if self.counts(held_at) {
            self.spent = self.spent.saturating_add(cost);
        }
    }

    /// What was spent, to be stored.
    pub(crate) fn spent(&self) -> Spent {
        Spent {
            budget: self.budget.clone(),
            starts_at: self.starts_at,
            nanos: self.spent,
        }
    }

    fn period(&self) -> Bounds {
        Bounds {
            starts_at: self.starts_at,
            ends_at: Some(self.ends_at).filter(|at| *at != i64::MAX),
        }
    }

    /// As it is at this time.
    pub(crate) fn state(&self, now: i64) -> BudgetState {
        let mut present = self.clone();
        present.turn_to(now);
        BudgetState {
            period: present.period(),
            spent: NanoUsd::new(present.spent),
            held: NanoUsd::new(present.held),
            budget: present.budget,
        }
    }

    fn shortage(&self) -> BudgetShortage {
        let budget = &self.budget;
        BudgetShortage {
            id: budget.id.clone(),
            scope: budget.scope,
            scope_id: budget.scope_id.clone(),
            name: budget.name.clone(),
            amount: budget.amount,
            period: budget.schedule.period(),
            spent: NanoUsd::new(self.spent),
            held: NanoUsd::new(self.held),
            exposure: NanoUsd::new(self.exposure),
            resets_at: self.period().ends_at,
        }
    }

    /// Whether a call that holds `before` may hold `wanted` instead. All of it must fit: amounts, and what running calls
    /// may cost beyond them.
    fn has_room(&self, before: &Place, wanted: &Place, overdraft: i64) -> bool {
        let (held, risk) = if self.counts(before.held_at) {
            (before.amount, before.risk)
        } else {
            (0, 0)
        };
        let room = self.budget.amount.nanos() - self.spent - (self.held - held);
        let missing = wanted.amount - held;
        let is_new = *before == Place::default();
        let fits = (missing <= 0 && !is_new) || (room > held && room >= wanted.amount);
        let bearable = room.saturating_sub(wanted.amount).saturating_add(overdraft);
        fits && (self.exposure - risk).saturating_add(wanted.risk) <= bearable
    }
}

impl Budgets {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Counted> {
        self.0.values().flatten()
    }

    /// Adds a budget, or replaces the one with its ID.
    pub(crate) fn put(&mut self, counted: Counted) {
        self.remove(&counted.budget.id);
        let at = self.0.entry(counted.budget.scope_id.clone()).or_default();
        at.push(counted);
    }

    pub(crate) fn remove(&mut self, id: &str) {
        for at in self.0.values_mut() {
            at.retain(|counted| counted.budget.id != id);
        }
        self.0.retain(|_, at| !at.is_empty());
    }

    pub(crate) fn states(&self, now: i64) -> Vec<BudgetState> {
        let mut states: Vec<_> = self.all().map(|counted| counted.state(now)).collect();
        states.sort_by(|one, other| in_order(&one.budget, &other.budget));
        states
    }

    /// Takes `wanted` in place of what the call holds, of all budgets above it; or refuses and changes nothing.
    pub(crate) fn take(
        &mut self,
        account_id: &str,
        payer: &Payer,
        before: &Place,
        wanted: &Place,
        overdraft: i64,
    ) -> Result<(), Vec<BudgetShortage>> {
        let mut refused = Vec::new();
        self.each_above(account_id, payer, |counted| {
            counted.turn_to(wanted.held_at);
            if counted.budget.hard && !counted.has_room(before, wanted, overdraft) {
                refused.push(counted.shortage());
            }
        });
        if !refused.is_empty() {
            return Err(narrowest_first(refused));
        }
        self.each_above(account_id, payer, |counted| {
            counted.remove(before);
            counted.add(wanted);
        });
        Ok(())
    }

    /// Counts what a running call has taken before.
    pub(crate) fn count(&mut self, account_id: &str, payer: &Payer, place: &Place) {
        self.each_above(account_id, payer, |counted| counted.count(place));
    }

    /// Counts what a running call has taken, in the periods as they are.
    pub(crate) fn add(&mut self, account_id: &str, payer: &Payer, place: &Place) {
        self.each_above(account_id, payer, |counted| counted.add(place));
    }

    /// These budgets, as if no call were running.
    pub(crate) fn without_holds(&self) -> Self {
        let mut budgets = self.clone();
        for counted in budgets.0.values_mut().flatten() {
            (counted.held, counted.exposure) = (0, 0);
        }
        budgets
    }

    /// These budgets, as if nothing had been spent.
    pub(crate) fn unspent(&self) -> Self {
        let mut budgets = self.clone();
        for counted in budgets.0.values_mut().flatten() {
            counted.spent = 0;
        }
        budgets
    }

    /// Adds the cost of a call to budgets whose periods it is in, without beginning others.
    pub(crate) fn add_cost(&mut self, account_id: &str, payer: &Payer, held_at: i64, cost: i64) {
        self.each_above(account_id, payer, |counted| {
            if (counted.starts_at..counted.ends_at).contains(&held_at) {
                counted.spent = counted.spent.saturating_add(cost);
            }
        });
    }

    pub(crate) fn get(&self, budget: &Budget) -> Option<&Counted> {
        let mut at = self.0.get(&budget.scope_id)?.iter();
        at.find(|counted| counted.budget.id == budget.id)
    }

    /// Releases what a call has taken.
    pub(crate) fn release(&mut self, account_id: &str, payer: &Payer, place: &Place) {
        self.each_above(account_id, payer, |counted| counted.remove(place));
    }

    /// Counts the cost of a call that was held at this time. Returns what was spent of each budget above it.
    pub(crate) fn spend(
        &mut self,
        account_id: &str,
        payer: &Payer,
        held_at: i64,
        cost: i64,
    ) -> Vec<Spent> {
        let mut spent = Vec::new();
        self.each_above(account_id, payer, |counted| {
            counted.spend(held_at, cost);
            spent.push(counted.spent());
        });
        spent
    }

    fn each_above(&mut self, account_id: &str, payer: &Payer, mut each: impl FnMut(&mut Counted)) {
        let places = [
            Some(account_id),
            Some(payer.project_id.as_deref().unwrap_or(DEFAULT_PROJECT)),
            payer.member_id.as_deref(),
            Some(payer.key_id.as_str()),
        ];
        for (scope, place) in BudgetScope::ALL.into_iter().zip(places) {
            let at = place.and_then(|place| self.0.get_mut(place));
            for counted in at.into_iter().flatten() {
                if counted.budget.scope == scope {
                    each(counted);
                }
            }
        }
    }
}

/// By what they stand at, then by the period.
pub(crate) fn in_order(one: &Budget, other: &Budget) -> std::cmp::Ordering {
    let key = |budget: &Budget| (budget.scope, budget.schedule.period(), budget.created_at);
    let by_key = key(one).cmp(&key(other));
    by_key.then_with(|| one.id.cmp(&other.id))
}
