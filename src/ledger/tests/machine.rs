//! Property tests of both ledgers against the model, through any order of events, with files or a server, threads and
//! restarts.

use std::marker::PhantomData;

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use tokio::runtime::Runtime;

use super::{
    model::{Budget, Kind, Model, Verdict},
    *,
};
use crate::ledger::{BudgetChange, BudgetShortage, KeyState, Period, Shortage};

const OVERDRAFT: i64 = 300;
const START: i64 = 1_800_000_000;

/// A cost as a share of the worst case, in thousandths: no call is charged more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share(i64);

impl Share {
    fn of(self, worst: i64) -> i64 {
        worst * self.0 / 1_000
    }
}

fn shares() -> impl Strategy<Value = Share> {
    // Half of them cost the worst case.
    prop_oneof![Just(Share(1_000)), (0_i64..=1_000).prop_map(Share)]
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Grant {
        amount: i64,
        expires_in: Option<i64>,
    },
    Hold {
        amount: i64,
        risk: i64,
    },
    /// A call continues with another step.
    Extend {
        which: usize,
        more: i64,
        risk: i64,
    },
    Charge {
        which: usize,
        cost: Share,
    },
    Release {
        which: usize,
    },
    Advance {
        seconds: i64,
    },
    SetBudget {
        kind: Kind,
        amount: i64,
        hard: bool,
    },
    RemoveBudget {
        kind: Kind,
    },
    SwitchKey,
    /// A charge that the disk refuses, and that succeeds when it no longer does; on a server a plain charge.
    ChargeWithRetry {
        which: usize,
        cost: Share,
    },
    /// Holds end with the process.
    Restart,
    Audit,
}

impl ReferenceStateMachine for Model {
    type State = Model;
    type Transition = Event;

    fn init_state() -> BoxedStrategy<Model> {
        let model = Model {
            now: START,
            key_active: true,
            ..Model::default()
        };
        Just(model).boxed()
    }

    fn transitions(model: &Model) -> BoxedStrategy<Event> {
        let open = model.holds.len();
        let any = prop_oneof![
            3 => (1_i64..400, prop::option::of(0_i64..30))
                .prop_map(|(amount, expires_in)| Event::Grant { amount, expires_in }),
            8 => (0_i64..300, 0_i64..300).prop_map(|(amount, risk)| Event::Hold { amount, risk }),
            4 => (0_i64..15).prop_map(|seconds| Event::Advance { seconds }),
            1 => Just(Event::Advance { seconds: 50_000 }),
            2 => (kinds(), 1_i64..900, prop::bool::weighted(0.9))
                .prop_map(|(kind, amount, hard)| Event::SetBudget { kind, amount, hard }),
            1 => kinds().prop_map(|kind| Event::RemoveBudget { kind }),
            1 => Just(Event::SwitchKey),
            1 => Just(Event::Restart),
            1 => Just(Event::Audit),
        ];
        if open == 0 {
            return any.boxed();
        }
        prop_oneof![
            3 => any,
            3 => (0..open, shares()).prop_map(|(which, cost)| Event::Charge { which, cost }),
            2 => (0..open, 0_i64..200, 0_i64..300)
                .prop_map(|(which, more, risk)| Event::Extend { which, more, risk }),
            1 => (0..open).prop_map(|which| Event::Release { which }),
            1 => (0..open, shares())
                .prop_map(|(which, cost)| Event::ChargeWithRetry { which, cost }),
        ]
        .boxed()
    }

    fn preconditions(model: &Model, event: &Event) -> bool {
        match event {
            Event::Charge { which, .. }
            | Event::Extend { which, .. }
            | Event::Release { which }
            | Event::ChargeWithRetry { which, .. } => *which < model.holds.len(),
            _ => true,
        }
    }

    fn apply(mut model: Model, event: &Event) -> Model {
        let open: Vec<usize> = model.holds.keys().copied().collect();
        match *event {
            Event::Grant { amount, expires_in } => {
                let expires_at = expires_in.map(|seconds| model.now + seconds);
                model.grant(amount, expires_at);
            }
            Event::Hold { amount, risk } => {
                if model.verdict(amount, amount + risk, OVERDRAFT) == Verdict::Held {
                    model.hold(amount, amount + risk);
                }
            }
            Event::Charge { which, cost } | Event::ChargeWithRetry { which, cost } => {
                let cost = cost.of(model.holds[&open[which]].worst());
                model.charge(open[which], cost);
            }
            Event::Extend { which, more, risk } => {
                if model.may_extend(open[which], more, risk, OVERDRAFT) {
                    model.extend(open[which], more, risk);
                }
            }
            Event::Release { which } => model.release(open[which]),
            Event::Advance { seconds } => model.now += seconds,
            Event::SetBudget { kind, amount, hard } => {
                let created_at = model
                    .budgets
                    .get(&kind)
                    .map_or(model.now, |it| it.created_at);
                let budget = Budget {
                    amount,
                    hard,
                    created_at,
                };
                model.budgets.insert(kind, budget);
            }
            Event::RemoveBudget { kind } => drop(model.budgets.remove(&kind)),
            Event::SwitchKey => model.key_active = !model.key_active,
            Event::Restart => model.holds.clear(),
            Event::Audit => model.forfeit(),
        }
        model
    }
}

/// Checks that the figures of a refusal are the model's.
fn refused_by(shortage: &Shortage, model: &Model) -> Verdict {
    assert_eq!(shortage.balance.nanos(), model.balance());
    assert_eq!(shortage.available.nanos(), model.available());
    assert_eq!(shortage.held.nanos(), model.held());
    assert_eq!(shortage.exposure.nanos(), model.exposure());
    assert_eq!(shortage.usable.nanos(), model.usable());
    match shortage.expired_at {
        Some(_) => Verdict::Expired,
        None => Verdict::Insufficient,
    }
}

/// Checks that the figures of the budgets that refuse are the model's.
fn over_budgets(budgets: &[BudgetShortage], model: &Model) -> Verdict {
    assert!(!budgets.is_empty());
    for shortage in budgets {
        let kind = if shortage.period == Period::Day {
            Kind::Day
        } else {
            Kind::Total
        };
        let found = (shortage.spent.nanos(), shortage.held.nanos());
        assert_eq!(found, (model.spent_of(kind), model.held_of_budget(kind)));
        assert_eq!(shortage.amount.nanos(), model.budgets[&kind].amount);
    }
    Verdict::OverBudget
}

fn period(kind: Kind) -> Period {
    match kind {
        Kind::Day => Period::Day,
        Kind::Total => Period::Total,
    }
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Day), Just(Kind::Total)]
}

/// Sets a budget of the account; returns what was spent and is held of it.
async fn set_budget(paying: &Paying, kind: Kind, amount: i64, hard: bool) -> (i64, i64) {
    let change = BudgetChange {
        hard,
        ..budget_of_account(&paying.account_id, period(kind), amount)
    };
    let set = paying.ledger.set_budget(change).await.unwrap();
    (set.spent.nanos(), set.held.nanos())
}

async fn remove_budget(paying: &Paying, kind: Kind) {
    let budgets = paying.ledger.budgets(&paying.account_id).await.unwrap();
    let mut budgets = budgets.into_iter();
    let found = budgets.find(|it| it.budget.schedule.period() == period(kind));
    if let Some(found) = found {
        let removed = paying.ledger.remove_budget(&found.budget.id).await;
        assert_eq!(removed.unwrap(), *found.budget);
    }
}

struct Real {
    runtime: Runtime,
    paying: Option<Paying>,
    /// In the order in which they were placed.
    holds: Vec<Held>,
    key_active: bool,
}

struct LedgerMachine<K>(PhantomData<K>);

trait Place {
    fn store() -> TestStore;
}

struct InFile;
struct OnServer;

impl Place for InFile {
    fn store() -> TestStore {
        TestStore::folder()
    }
}

impl Place for OnServer {
    fn store() -> TestStore {
        TestStore::database()
    }
}

impl<K: Place> StateMachineTest for LedgerMachine<K> {
    type SystemUnderTest = Real;
    type Reference = Model;

    fn init_test(_: &Model) -> Real {
        let runtime = Runtime::new().unwrap();
        let paying = runtime.block_on(Paying::on(K::store()));
        Real {
            runtime,
            paying: Some(paying),
            holds: Vec::new(),
            key_active: true,
        }
    }

    fn apply(mut real: Real, model: &Model, event: Event) -> Real {
        let paying = real.paying.take().unwrap();
        let paying = match event {
            Event::Restart => {
                real.holds.clear();
                real.runtime.block_on(paying.restart())
            }
            _ => paying,
        };
        match event {
            Event::Grant { amount, expires_in } => {
                let expires_at = expires_in.map(|seconds| model.now + seconds);
                real.runtime.block_on(paying.give(amount, expires_at));
            }
            Event::Hold { amount, risk } => {
                let held = real
                    .runtime
                    .block_on(paying.hold(amount, amount + risk, OVERDRAFT));
                // The model has the hold already, if there is one.
                let before = real.holds.len();
                assert_eq!(held.is_ok(), model.holds.len() > before, "{:?}", held.err());
                match held {
                    Ok(held) => {
                        real.holds.push(held);
                    }
                    Err(refused) => {
                        let verdict = match refused {
                            HoldRefused::KeyInactive => Verdict::KeyInactive,
                            HoldRefused::Short(shortage) => refused_by(&shortage, model),
                            HoldRefused::OverBudget(budgets) => over_budgets(&budgets, model),
                            other => panic!("{other:?}"),
                        };
                        assert_eq!(verdict, model.verdict(amount, amount + risk, OVERDRAFT));
                    }
                }
            }
            Event::Charge { which, .. } => {
                let cost = model.last_charge;
                let mut held = real.holds.remove(which);
                let call = real.runtime.block_on(charge(&mut held, cost)).unwrap();
                let charged = call.charged.unwrap();
                assert_eq!(charged.cost.nanos(), cost);
                let moved = charged.balance_before.nanos() - charged.balance_after.nanos();
                assert_eq!(moved, cost);
                let again = held.charge(tokens(cost), Outcome::Answered);
                assert!(matches!(
                    real.runtime.block_on(again),
                    Err(LedgerError::NoHold)
                ));
            }
            Event::ChargeWithRetry { which, .. } => {
                let cost = model.last_charge;
                let mut held = real.holds.remove(which);
                if let TestStore::Folder(folder) = &*paying.store {
                    let stranger = rusqlite::Connection::open(folder.path().join("ledger.db"));
                    let stranger = stranger.unwrap();
                    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
                    let refused = held.charge(tokens(cost), Outcome::Answered);
                    assert!(real.runtime.block_on(refused).is_err());
                    drop(stranger);
                    real.runtime.block_on(paying.until_charges_are_taken());
                }
                real.runtime.block_on(charge(&mut held, cost)).unwrap();
            }
            Event::Extend { which, more, risk } => {
                let before = real.runtime.block_on(paying.held());
                let amount = real.holds[which].amount() + more;
                let nanos = NanoUsd::new;
                let (amount, worst) = (nanos(amount), nanos(amount + risk));
                let extended = real.holds[which].extend(0, amount, worst, nanos(OVERDRAFT));
                let extended = real.runtime.block_on(extended);
                // The model has extended it already, if it may be: the held amount must agree with it. Part of it may
                // have been held of an expired grant before.
                let grew = real.runtime.block_on(paying.held()) - before;
                assert!((0..=if extended.is_ok() { more } else { 0 }).contains(&grew));
            }
            Event::Release { which } => drop(real.holds.remove(which)),
            Event::Advance { seconds } => paying.advance(seconds),
            Event::SetBudget { kind, amount, hard } => {
                let set = set_budget(&paying, kind, amount, hard);
                let found = real.runtime.block_on(set);
                assert_eq!(found, (model.spent_of(kind), model.held_of_budget(kind)));
            }
            Event::RemoveBudget { kind } => real.runtime.block_on(remove_budget(&paying, kind)),
            Event::SwitchKey => {
                real.key_active = !real.key_active;
                let state = if real.key_active {
                    KeyState::Active
                } else {
                    KeyState::Disabled
                };
                let switched = paying.ledger.set_key_state(&paying.key_id, state);
                real.runtime.block_on(switched).unwrap();
            }
            Event::Restart => {}
            Event::Audit => {
                real.runtime.block_on(paying.assert_sound());
                real.runtime.block_on(paying.assert_added_up());
            }
        }
        real.paying = Some(paying);
        real
    }

    fn check_invariants(real: &Real, model: &Model) {
        let paying = real.paying.as_ref().unwrap();
        let requested = paying.ledger.balances(&paying.account_id);
        let balances = real.runtime.block_on(requested).unwrap();
        let found = (
            balances.balance.nanos(),
            balances.held.nanos(),
            balances.available.nanos(),
            balances.expires_at,
        );
        let expected = (
            model.balance(),
            model.held(),
            model.available(),
            model.expires_at(),
        );
        assert_eq!(found, expected, "balance, held, available, expiry");
        let budgets = real
            .runtime
            .block_on(paying.ledger.budgets(&paying.account_id));
        let budgets = budgets.unwrap();
        let in_budgets = budgets.iter().map(|it| {
            let period = (it.budget.schedule.period(), it.period.starts_at);
            (
                period,
                it.budget.amount.nanos(),
                it.spent.nanos(),
                it.held.nanos(),
            )
        });
        let expected = model.budgets.iter().map(|(kind, budget)| {
            let period = (period(*kind), model.period_start(*kind));
            (
                period,
                budget.amount,
                model.spent_of(*kind),
                model.held_of_budget(*kind),
            )
        });
        let expected: Vec<_> = expected.collect();
        assert_eq!(in_budgets.collect::<Vec<_>>(), expected, "budgets");
        assert!(model.adds_up());
        assert!(
            balances.balance.nanos() >= -OVERDRAFT,
            "{found:?} is further below zero than may be"
        );
    }

    fn teardown(mut real: Real, _: Model) {
        real.holds.clear();
        let paying = real.paying.take().unwrap();
        real.runtime.block_on(paying.assert_sound());
        assert_eq!(real.runtime.block_on(paying.held()), 0);
        let before = real.runtime.block_on(paying.balance());
        let paying = real.runtime.block_on(paying.restart());
        assert_eq!(real.runtime.block_on(paying.balance()), before);
        real.runtime.block_on(paying.assert_added_up());
        real.runtime.block_on(paying.ledger.close());
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn the_ledger_in_a_file_does_what_the_model_does(sequential 1..40 => LedgerMachine<InFile>);
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn the_ledger_on_a_server_does_what_the_model_does(sequential 1..30 => LedgerMachine<OnServer>);
}
