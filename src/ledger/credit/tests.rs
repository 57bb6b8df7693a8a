//! Tests of one account's credit.

use super::{CallId, Charge, Credit, Funds, NanoUsd, Refused as RefusedBy, Shortage, Wanted};
use crate::ledger::Payer;

fn usd(nanos: i64) -> NanoUsd {
    NanoUsd::new(nanos)
}

fn funds(id: &str, amount: i64, expires_at: Option<i64>) -> Funds {
    Funds::new(id.into(), usd(amount), expires_at)
}

fn credit(grants: &[(i64, Option<i64>)]) -> Credit {
    let grants = grants.iter().enumerate();
    let funds = grants.map(|(at, (amount, expires_at))| {
        let id = format!("g{at}");
        funds(&id, *amount, *expires_at)
    });
    Credit::restored(funds.collect(), usd(0), None)
}

/// The balance of a refusal, and when the credit expired, if that was the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refused {
    balance: i64,
    expired_at: Option<i64>,
}

impl Refused {
    fn by(shortage: &Shortage) -> Self {
        Self {
            balance: shortage.balance.nanos(),
            expired_at: shortage.expired_at,
        }
    }

    fn spent(balance: i64) -> Self {
        let expired_at = None;
        Self {
            balance,
            expired_at,
        }
    }
}

impl Credit {
    /// Holds an amount for a call that may cost up to `worst`.
    fn hold_up_to(
        &mut self,
        now: i64,
        id: u64,
        [amount, worst, overdraft]: [i64; 3],
    ) -> Result<(), Shortage> {
        let wanted = Wanted {
            id: CallId(id),
            payer: &Payer::service("key_1"),
            amount: usd(amount),
            worst: usd(worst),
            overdraft: usd(overdraft),
        };
        self.hold(wanted, now).map_err(|refused| match refused {
            RefusedBy::Short(shortage) => shortage,
            RefusedBy::OverBudget(_) => unreachable!("there is no budget"),
        })
    }

    /// Holds exactly what the call may cost.
    fn hold_at(&mut self, now: i64, id: u64, amount: i64) -> Result<(), Refused> {
        let held = self.hold_up_to(now, id, [amount, amount, 0]);
        held.map_err(|shortage| Refused::by(&shortage))
    }

    fn charge_at(&mut self, now: i64, id: u64, cost: i64) -> Charge {
        let charge = self.charge(CallId(id), usd(cost), now).unwrap();
        self.release(CallId(id));
        assert_eq!(self.contradiction(), None);
        charge
    }
}

#[test]
fn the_grant_that_expires_first_is_used_first() {
    let mut credit = credit(&[(100, None), (50, Some(20)), (50, Some(10))]);
    assert_eq!(credit.expires_at(0), Some(10));
    credit.hold_at(0, 1, 70).unwrap();
    assert_eq!(credit.expires_at(0), Some(20));
    let charge = credit.charge_at(0, 1, 60);
    let left: Vec<_> = charge
        .left
        .iter()
        .map(|left| (&*left.grant_id, left.remaining))
        .collect();
    assert_eq!(left, [("g2", usd(0)), ("g1", usd(40))]);
    assert_eq!((credit.balance(0), credit.held()), (usd(140), usd(0)));
}

#[test]
fn of_two_grants_that_expire_together_the_older_is_used_first() {
    let mut credit = credit(&[(50, Some(10)), (50, Some(10)), (50, None), (50, None)]);
    for (id, grant) in [(1, "g0"), (2, "g1"), (3, "g2"), (4, "g3")] {
        credit.hold_at(0, id, 50).unwrap();
        assert_eq!(&*credit.charge_at(0, id, 50).left[0].grant_id, grant);
    }
}

#[test]
fn a_grant_that_expires_while_a_call_runs_pays_for_all_of_it() {
    let mut credit = credit(&[(100, Some(10)), (20, None)]);
    credit.hold_up_to(9, 1, [30, 60, 0]).unwrap();
    let update = credit.bring_up_to_date(10);
    assert_eq!(
        update.forfeits[0].amount,
        usd(40),
        "neither held nor at risk"
    );
    assert_eq!((credit.held(), credit.available(10)), (usd(60), usd(20)));
    let charge = credit.charge_at(10, 1, 55);
    assert_eq!((charge.debt, &*charge.left[0].grant_id), (None, "g0"));
    assert_eq!(credit.bring_up_to_date(10).forfeits[0].amount, usd(5));
    assert_eq!(credit.balance(10), usd(20), "the other grant is untouched");
}

#[test]
fn a_grant_pays_for_no_call_admitted_after_its_expiry() {
    let mut credit = credit(&[(100, Some(10)), (20, None)]);
    credit.hold_up_to(10, 1, [10, 40, 20]).unwrap();
    assert_eq!(credit.bring_up_to_date(10).forfeits[0].amount, usd(100));
    let charge = credit.charge_at(10, 1, 40);
    assert_eq!((charge.debt, charge.after), (Some(usd(20)), usd(-20)));
}

#[test]
fn expiry_forfeits_the_unheld_part_only() {
    let mut credit = credit(&[(100, Some(10))]);
    credit.hold_at(9, 1, 60).unwrap();
    let refused = Refused {
        balance: 60,
        expired_at: Some(10),
    };
    assert_eq!(
        credit.hold_at(10, 2, 1),
        Err(refused),
        "before the forfeit is posted"
    );
    let forfeits = credit.bring_up_to_date(10).forfeits;
    assert_eq!(forfeits.len(), 1);
    assert_eq!((forfeits[0].amount, forfeits[0].after), (usd(40), usd(60)));
    assert_eq!(
        (credit.balance(10), credit.available(10)),
        (usd(60), usd(0))
    );
    assert_eq!(credit.hold_at(10, 2, 1), Err(refused), "and after");
    let charge = credit.charge_at(11, 1, 45);
    assert_eq!(
        (charge.debt, charge.after),
        (None, usd(15)),
        "the held credit pays"
    );
    assert_eq!(credit.balance(11), usd(0), "the rest is not held");
    assert_eq!(credit.bring_up_to_date(11).forfeits[0].amount, usd(15));
    assert_eq!(credit.bring_up_to_date(11).forfeits, []);
}

#[test]
fn a_clock_set_back_revives_no_expired_credit() {
    let mut credit = credit(&[(100, Some(10))]);
    assert!(credit.hold_at(10, 1, 1).is_err());
    let refused = credit.hold_at(9, 1, 1).unwrap_err();
    assert_eq!(refused.expired_at, Some(10));
    assert_eq!(credit.balance(9), usd(0));
}

#[test]
fn a_refusal_tells_expiry_from_spending_until_the_next_grant() {
    let mut credit = credit(&[(100, Some(10)), (50, None)]);
    credit.bring_up_to_date(10);
    credit.hold_at(10, 1, 50).unwrap();
    credit.charge_at(10, 1, 50);
    let spent = Err(Refused::spent(0));
    assert_eq!(
        credit.hold_at(11, 2, 1),
        spent,
        "a call used the last of it"
    );
    credit.grant(&funds("new", 5, Some(20)));
    credit.bring_up_to_date(20);
    let expired = Err(Refused {
        balance: 0,
        expired_at: Some(20),
    });
    assert_eq!(credit.hold_at(21, 2, 1), expired);
    let mut restored = Credit::restored(Vec::new(), usd(0), credit.lapsed_at);
    assert_eq!(restored.hold_at(21, 2, 1), expired, "after a restart too");
    credit.grant(&funds("newer", 5, None));
    credit.hold_at(22, 3, 5).unwrap();
    credit.charge_at(22, 3, 5);
    assert_eq!(credit.hold_at(23, 4, 1), spent);
}

#[test]
fn a_cost_beyond_the_hold_is_debt_that_the_next_grant_pays() {
    let mut credit = credit(&[(100, None)]);
    credit.hold_up_to(0, 1, [100, 180, 80]).unwrap();
    credit.charge_at(0, 1, 130);
    assert_eq!(credit.balance(0), usd(-30));
    let refused = credit.hold_up_to(0, 2, [0, 0, 80]);
    assert_eq!(Refused::by(&refused.unwrap_err()), Refused::spent(-30));
    let granted = credit.grant(&funds("new", 50, None));
    assert_eq!(
        (granted.remaining, granted.debt, granted.after),
        (usd(20), usd(0), usd(20))
    );
    assert_eq!((credit.balance(0), credit.available(0)), (usd(20), usd(20)));
}

#[test]
fn released_credit_pays_debt_before_it_expires() {
    let mut credit = credit(&[(100, Some(10))]);
    credit.hold_at(0, 1, 60).unwrap();
    credit.hold_up_to(0, 2, [40, 70, 80]).unwrap();
    assert_eq!(
        credit.charge_at(0, 2, 70).debt,
        Some(usd(30)),
        "the rest is held"
    );
    credit.release(CallId(1));
    assert_eq!((credit.balance(0), credit.balance(10)), (usd(30), usd(0)));
    let update = credit.bring_up_to_date(10);
    assert_eq!(update.debt, Some(usd(0)));
    assert_eq!(update.forfeits[0].amount, usd(30));
    assert_eq!((credit.balance(10), credit.total()), (usd(0), usd(0)));
    assert_eq!(credit.contradiction(), None);
}

#[test]
fn expired_credit_that_pays_debt_counts_as_spent() {
    let mut credit = credit(&[(100, Some(10))]);
    credit.hold_at(0, 1, 20).unwrap();
    credit.hold_up_to(0, 2, [80, 110, 80]).unwrap();
    credit.charge_at(0, 2, 110);
    credit.release(CallId(1));
    let spent = Err(Refused::spent(-10));
    assert_eq!(
        credit.hold_at(10, 3, 1),
        spent,
        "twenty are free, thirty owed"
    );
    assert_eq!(credit.bring_up_to_date(10).forfeits, []);
    assert_eq!(credit.hold_at(10, 3, 1), spent);
}

#[test]
fn debt_is_bounded_by_the_overdraft() {
    let mut credit = credit(&[(100, None)]);
    let hold = |credit: &mut Credit, id| credit.hold_up_to(0, id, [10, 100, 50]);
    hold(&mut credit, 1).unwrap();
    let refused = hold(&mut credit, 2).unwrap_err();
    assert_eq!(Refused::by(&refused), Refused::spent(100));
    assert!(refused.covers_alone(usd(10), usd(100), usd(50)));
    assert!(refused.covers(usd(10), usd(50), usd(50)));
    assert!(!refused.covers(usd(10), usd(61), usd(50)));
    assert!(!refused.covers_alone(usd(10), usd(151), usd(50)));
    credit.release(CallId(1));
    credit.release(CallId(1));
    assert_eq!(credit.available(0), usd(100));
    hold(&mut credit, 2).unwrap();
}

#[test]
fn a_charge_that_was_not_committed_is_held_again() {
    let mut before = credit(&[(100, None)]);
    before.hold_at(0, 1, 40).unwrap();
    before.hold_at(0, 2, 10).unwrap();
    before.charge(CallId(1), usd(30), 0).unwrap();
    assert_eq!(before.charge(CallId(1), usd(30), 0), None, "once");
    let mut stored = credit(&[(100, None)]);
    stored.take_over_holds(&before);
    assert_eq!((stored.held(), stored.available(0)), (usd(50), usd(50)));
    assert_eq!(stored.charge_at(0, 1, 30).after, usd(70));
    assert_eq!(stored.held(), usd(10));
}
