//! A reference model of the ledger, as simple as possible: one account, lists, no files.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub now: i64,
    pub grants: Vec<Grant>,
    pub debt: i64,
    /// For each running call, the parts held of grants and the risk beyond them.
    pub holds: BTreeMap<usize, Hold>,
    pub granted: i64,
    pub spent: i64,
    /// The cost of the latest charge.
    pub last_charge: i64,
    pub forfeited: i64,
    /// Whether an expiry took the last credit; reset by a grant.
    pub lapsed: bool,
    pub key_active: bool,
    pub calls: usize,
    /// By kind of period.
    pub budgets: BTreeMap<Kind, Budget>,
    /// When each charged call was held, and its cost.
    pub charges: Vec<(i64, i64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Day,
    Total,
}

/// A budget of the account.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    pub amount: i64,
    pub hard: bool,
    pub created_at: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub left: i64,
    pub expires_at: Option<i64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub parts: Vec<(usize, i64)>,
    pub risk: i64,
    /// The requested amount; more may be held of an expired grant.
    pub requested: i64,
    pub admitted_at: i64,
    /// What budgets count: since when, the amount, and the risk.
    pub counted: (i64, i64, i64),
}

impl Hold {
    fn amount(&self) -> i64 {
        self.parts.iter().map(|(_, part)| part).sum()
    }

    /// The most that the call may cost.
    pub(crate) fn worst(&self) -> i64 {
        self.amount() + self.risk
    }
}

/// The result of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Held,
    KeyInactive,
    Insufficient,
    Expired,
    OverBudget,
}

impl Model {
    fn live(&self, grant: usize) -> bool {
        self.grants[grant].expires_at.is_none_or(|at| at > self.now)
    }

    fn held_of(&self, grant: usize) -> i64 {
        let parts = self.holds.values().flat_map(|hold| &hold.parts);
        parts
            .filter(|(of, _)| *of == grant)
            .map(|(_, part)| part)
            .sum()
    }

    /// Live grants by expiry, then by age.
    fn in_order_of_use(&self) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.grants.len()).filter(|at| self.live(*at)).collect();
        order.sort_by_key(|at| (self.grants[*at].expires_at.unwrap_or(i64::MAX), *at));
        order
    }

    pub(crate) fn held(&self) -> i64 {
        self.holds
            .values()
            .flat_map(|hold| &hold.parts)
            .map(|(_, part)| part)
            .sum()
    }

    pub(crate) fn balance(&self) -> i64 {
        let mut settled = self.clone();
        settled.pay_debt();
        settled.expire();
        settled.grants.iter().map(|grant| grant.left).sum::<i64>() - settled.debt
    }

    pub(crate) fn available(&self) -> i64 {
        self.balance() - self.held()
    }

    pub(crate) fn expires_at(&self) -> Option<i64> {
        let order = self.in_order_of_use().into_iter();
        let mut usable = order.filter(|at| self.grants[*at].left > self.held_of(*at));
        usable.next().and_then(|at| self.grants[at].expires_at)
    }

    pub(crate) fn grant(&mut self, amount: i64, expires_at: Option<i64>) {
        self.forfeit();
        let paid = self.debt.min(amount);
        self.debt -= paid;
        self.granted += amount;
        self.lapsed = false;
        let left = amount - paid;
        self.grants.push(Grant { left, expires_at });
    }

    pub(crate) fn verdict(&self, amount: i64, worst: i64, overdraft: i64) -> Verdict {
        let available = self.available();
        let risk = self.exposure() + (worst - amount).max(0);
        if !self.key_active {
            Verdict::KeyInactive
        } else if available > 0 && available >= amount && risk <= available - amount + overdraft {
            let risk = (worst - amount).max(0);
            if self.budgets_have_room(None, amount, risk, overdraft) {
                Verdict::Held
            } else {
                Verdict::OverBudget
            }
        } else if self.emptied_by_expiry() {
            Verdict::Expired
        } else {
            Verdict::Insufficient
        }
    }

    pub(crate) fn exposure(&self) -> i64 {
        self.holds.values().map(|hold| hold.risk).sum()
    }

    /// Credit that has not expired, less the debt that remains after expired credit has paid its part.
    pub(crate) fn usable(&self) -> i64 {
        let mut settled = self.clone();
        settled.pay_debt();
        let order = settled.in_order_of_use();
        let left = order.iter().map(|at| settled.grants[*at].left);
        left.sum::<i64>() - settled.debt
    }

    fn live_left(&self) -> i64 {
        let order = self.in_order_of_use();
        order.iter().map(|at| self.grants[*at].left).sum::<i64>() - self.debt
    }

    /// Nothing usable is left, and an expiry took the last of it.
    fn emptied_by_expiry(&self) -> bool {
        let mut settled = self.clone();
        settled.pay_debt();
        settled.expire();
        settled.live_left() <= 0 && settled.lapsed
    }

    pub(crate) fn hold(&mut self, amount: i64, worst: i64) {
        let mut missing = amount;
        let mut parts = Vec::new();
        for at in self.in_order_of_use() {
            let part = (self.grants[at].left - self.held_of(at)).min(missing);
            if part > 0 {
                parts.push((at, part));
                missing -= part;
            }
        }
        let risk = (worst - amount).max(0);
        let hold = Hold {
            parts,
            risk,
            requested: amount,
            admitted_at: self.now,
            counted: (self.now, amount, risk),
        };
        self.holds.insert(self.calls, hold);
        self.calls += 1;
    }

    /// How much a running call would hold in addition, and its risk, if it requested `more` and might cost up to `risk`
    /// beyond that.
    fn extended(&self, call: usize, more: i64, risk: i64) -> (i64, i64) {
        let hold = &self.holds[&call];
        let (amount, requested) = (hold.amount(), hold.requested + more);
        (
            (requested - amount).max(0),
            (requested + risk - amount.max(requested)).max(0),
        )
    }

    pub(crate) fn may_extend(&self, call: usize, more: i64, risk: i64, overdraft: i64) -> bool {
        let available = self.available();
        let in_budgets = self.extended_in_budgets(call, more, risk);
        let (missing, risk) = self.extended(call, more, risk);
        let others = self.holds.iter().filter(|(id, _)| **id != call);
        let exposed: i64 = others.map(|(_, hold)| hold.risk).sum();
        let covered = missing == 0 || available >= missing;
        self.key_active
            && covered
            && exposed + risk <= available - missing + overdraft
            && self.budgets_have_room(Some(call), in_budgets.0, in_budgets.1, overdraft)
    }

    /// What an extended call takes of budgets, and its risk: not what expired grants have added to its hold.
    fn extended_in_budgets(&self, call: usize, more: i64, risk: i64) -> (i64, i64) {
        let hold = &self.holds[&call];
        let requested = hold.requested + more;
        let amount = requested.max(hold.counted.1);
        (amount, (requested + risk - amount).max(0))
    }

    pub(crate) fn extend(&mut self, call: usize, more: i64, risk: i64) {
        let (amount, in_budgets_risk) = self.extended_in_budgets(call, more, risk);
        let (mut missing, risk) = self.extended(call, more, risk);
        for at in self.in_order_of_use() {
            let part = (self.grants[at].left - self.held_of(at)).clamp(0, missing);
            missing -= part;
            self.holds.get_mut(&call).unwrap().parts.push((at, part));
        }
        let hold = self.holds.get_mut(&call).unwrap();
        hold.risk = risk;
        hold.requested += more;
        hold.counted = (self.now, amount, in_budgets_risk);
    }

    /// When the present period of a budget began.
    pub(crate) fn period_start(&self, kind: Kind) -> i64 {
        match kind {
            Kind::Day => self.now - self.now.rem_euclid(86_400),
            Kind::Total => self.budgets[&kind].created_at,
        }
    }

    pub(crate) fn spent_of(&self, kind: Kind) -> i64 {
        let start = self.period_start(kind);
        let charges = self.charges.iter().filter(|(at, _)| *at >= start);
        charges.map(|(_, cost)| cost).sum()
    }

    /// What calls hold of a budget and their risk, but for one of them.
    fn running_of(&self, kind: Kind, but: Option<usize>) -> (i64, i64) {
        let start = self.period_start(kind);
        let holds = self.holds.iter().filter(|(id, _)| Some(**id) != but);
        let counted = holds.map(|(_, hold)| hold.counted);
        counted
            .filter(|(at, _, _)| *at >= start)
            .fold((0, 0), |(amounts, risks), (_, amount, risk)| {
                (amounts + amount, risks + risk)
            })
    }

    pub(crate) fn held_of_budget(&self, kind: Kind) -> i64 {
        self.running_of(kind, None).0
    }

    /// Whether all hard budgets have room for a call that holds this instead of what it holds.
    fn budgets_have_room(
        &self,
        call: Option<usize>,
        amount: i64,
        risk: i64,
        overdraft: i64,
    ) -> bool {
        let hard = self.budgets.iter().filter(|(_, budget)| budget.hard);
        hard.into_iter().all(|(kind, budget)| {
            let (held, risks) = self.running_of(*kind, call);
            let room = budget.amount - self.spent_of(*kind) - held;
            let counted = call.map(|call| self.holds[&call].counted);
            let before = counted.filter(|(at, _, _)| *at >= self.period_start(*kind));
            let before = before.map_or(0, |(_, amount, _)| amount);
            let raised = call.is_none() || amount > before;
            (!raised || (room > before && room >= amount))
                && risks + risk <= room - amount + overdraft
        })
    }

    pub(crate) fn release(&mut self, call: usize) {
        self.holds.remove(&call);
    }

    pub(crate) fn charge(&mut self, call: usize, cost: i64) {
        self.forfeit();
        let hold = self.holds.remove(&call).unwrap();
        let mut owed = cost;
        for (at, part) in hold.parts {
            let part = part.min(owed);
            self.grants[at].left -= part;
            owed -= part;
        }
        for at in self.in_order_of_use() {
            let part = (self.grants[at].left - self.held_of(at)).clamp(0, owed);
            self.grants[at].left -= part;
            owed -= part;
        }
        self.debt += owed;
        self.charges.push((hold.counted.0, cost));
        self.spent += cost;
        self.last_charge = cost;
    }

    /// Pays debt, lets calls hold their risk of expired grants that were valid when they were admitted, and forfeits
    /// the rest of these grants.
    pub(crate) fn forfeit(&mut self) {
        self.pay_debt();
        self.hold_risk();
        self.expire();
    }

    fn by_expiry(&self) -> Vec<usize> {
        let mut all: Vec<_> = (0..self.grants.len()).collect();
        all.sort_by_key(|at| (self.grants[*at].expires_at.unwrap_or(i64::MAX), *at));
        all
    }

    /// From credit that is not held, the earliest expiry first.
    fn pay_debt(&mut self) {
        for at in self.by_expiry() {
            let free = self.grants[at].left - self.held_of(at);
            let paid = free.min(self.debt);
            self.grants[at].left -= paid;
            self.debt -= paid;
        }
    }

    /// Holds the risk of calls from expired grants that were valid when the calls were admitted.
    fn hold_risk(&mut self) {
        for at in self
            .by_expiry()
            .into_iter()
            .filter(|at| !self.live(*at))
            .collect::<Vec<_>>()
        {
            let until = self.grants[at].expires_at.unwrap();
            let calls: Vec<usize> = self.holds.keys().copied().collect();
            for call in calls {
                let free = self.grants[at].left - self.held_of(at);
                let hold = self.holds.get_mut(&call).unwrap();
                if hold.admitted_at < until {
                    let part = free.min(hold.risk);
                    hold.parts.push((at, part));
                    hold.risk -= part;
                }
            }
        }
    }

    fn expire(&mut self) {
        for at in 0..self.grants.len() {
            if !self.live(at) {
                let free = self.grants[at].left - self.held_of(at);
                self.grants[at].left -= free;
                self.forfeited += free;
                self.lapsed |= free > 0;
            }
        }
        self.lapsed &= self.live_left() <= 0;
    }

    /// Grants equal charges plus forfeits plus what is left, less the debt.
    pub(crate) fn adds_up(&self) -> bool {
        let left: i64 = self.grants.iter().map(|grant| grant.left).sum();
        self.granted == self.spent + self.forfeited + left - self.debt
    }
}
