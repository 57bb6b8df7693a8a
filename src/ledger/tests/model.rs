//! What the ledger must do, as plainly as it can be said: one account, lists, no files.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub now: i64,
    pub grants: Vec<Grant>,
    pub debt: i64,
    /// What each running call took of which grant, and what it may cost beyond that.
    pub holds: BTreeMap<usize, Hold>,
    pub granted: i64,
    pub spent: i64,
    pub forfeited: i64,
    /// Whether it was an expiry that took the last of it; a grant ends that.
    pub lapsed: bool,
    pub key_active: bool,
    pub calls: usize,
}

#[derive(Clone, Debug)]
pub struct Grant {
    pub left: i64,
    pub expires_at: Option<i64>,
}

#[derive(Clone, Debug)]
pub struct Hold {
    pub parts: Vec<(usize, i64)>,
    pub risk: i64,
}

/// What a hold comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Held,
    KeyInactive,
    Insufficient,
    Expired,
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

    pub fn held(&self) -> i64 {
        self.holds
            .values()
            .flat_map(|hold| &hold.parts)
            .map(|(_, part)| part)
            .sum()
    }

    pub fn balance(&self) -> i64 {
        let mut settled = self.clone();
        settled.forfeit();
        settled.grants.iter().map(|grant| grant.left).sum::<i64>() - settled.debt
    }

    pub fn available(&self) -> i64 {
        self.balance() - self.held()
    }

    pub fn expires_at(&self) -> Option<i64> {
        let order = self.in_order_of_use().into_iter();
        let mut usable = order.filter(|at| self.grants[*at].left > self.held_of(*at));
        usable.next().and_then(|at| self.grants[at].expires_at)
    }

    pub fn grant(&mut self, amount: i64, expires_at: Option<i64>) {
        self.forfeit();
        let paid = self.debt.min(amount);
        self.debt -= paid;
        self.granted += amount;
        self.lapsed = false;
        let left = amount - paid;
        self.grants.push(Grant { left, expires_at });
    }

    pub fn verdict(&self, amount: i64, worst: i64, overdraft: i64) -> Verdict {
        let available = self.available();
        let exposed: i64 = self.holds.values().map(|hold| hold.risk).sum();
        let risk = exposed + (worst - amount).max(0);
        if !self.key_active {
            Verdict::KeyInactive
        } else if available > 0 && available >= amount && risk <= available - amount + overdraft {
            Verdict::Held
        } else if self.emptied_by_expiry() {
            Verdict::Expired
        } else {
            Verdict::Insufficient
        }
    }

    fn usable(&self) -> i64 {
        let order = self.in_order_of_use();
        order.iter().map(|at| self.grants[*at].left).sum::<i64>() - self.debt
    }

    /// Nothing usable is left, and it was an expiry that took the last of it.
    fn emptied_by_expiry(&self) -> bool {
        let mut settled = self.clone();
        settled.forfeit();
        settled.usable() <= 0 && settled.lapsed
    }

    pub fn hold(&mut self, amount: i64, worst: i64) {
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
        self.holds.insert(self.calls, Hold { parts, risk });
        self.calls += 1;
    }

    /// Whether a running call may hold `more`, and cost up to `risk` beyond what it holds then.
    pub fn may_extend(&self, call: usize, more: i64, risk: i64, overdraft: i64) -> bool {
        let available = self.available();
        let others = self.holds.iter().filter(|(id, _)| **id != call);
        let exposed: i64 = others.map(|(_, hold)| hold.risk).sum();
        let covered = more == 0 || available >= more;
        self.key_active && covered && exposed + risk <= available - more + overdraft
    }

    pub fn extend(&mut self, call: usize, more: i64, risk: i64) {
        let mut missing = more;
        for at in self.in_order_of_use() {
            let part = (self.grants[at].left - self.held_of(at)).clamp(0, missing);
            missing -= part;
            self.holds.get_mut(&call).unwrap().parts.push((at, part));
        }
        self.holds.get_mut(&call).unwrap().risk = risk;
    }

    pub fn release(&mut self, call: usize) {
        self.holds.remove(&call);
    }

    pub fn charge(&mut self, call: usize, cost: i64) {
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
        self.spent += cost;
    }

    /// What is owed is paid from whatever is free, the earliest expiry first; then what is free of
    /// expired grants goes.
    pub fn forfeit(&mut self) {
        let mut all: Vec<_> = (0..self.grants.len()).collect();
        all.sort_by_key(|at| (self.grants[*at].expires_at.unwrap_or(i64::MAX), *at));
        for at in all {
            let free = self.grants[at].left - self.held_of(at);
            let paid = free.min(self.debt);
            self.grants[at].left -= paid;
            self.debt -= paid;
        }
        for at in 0..self.grants.len() {
            if !self.live(at) {
                let free = self.grants[at].left - self.held_of(at);
                self.grants[at].left -= free;
                self.forfeited += free;
                self.lapsed |= free > 0;
            }
        }
        self.lapsed &= self.usable() <= 0;
    }

    /// What was given is what was spent, what expired and what is left, less what is owed.
    pub fn adds_up(&self) -> bool {
        let left: i64 = self.grants.iter().map(|grant| grant.left).sum();
        self.granted == self.spent + self.forfeited + left - self.debt
    }
}
