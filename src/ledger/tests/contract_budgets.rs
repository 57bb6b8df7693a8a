//! Budgets on both backends: what fits into them, what counts, and what an audit finds. Periods are in
//! `contract_budget_periods.rs`.

use super::*;
use crate::{
    base::month::Month,
    ledger::{AccountChange, BudgetShortage, BudgetState, Edit, KeyChange, NewKey},
};

contract!(
    a_budget_is_spent_to_the_last_nano_dollar_and_no_further,
    a_refusal_has_the_figures_of_the_ledger,
    what_calls_may_cost_beyond_their_holds_is_bounded,
    a_soft_budget_refuses_nothing,
    a_call_counts_in_all_budgets_above_it,
    a_budget_counts_what_was_spent_and_is_held_before_it,
    changes_apply_to_the_next_hold,
    released_and_cancelled_calls_count_no_longer,
    budgets_survive_a_restart,
    budgets_stand_only_at_what_the_account_has,
    an_audit_finds_a_budget_that_differs_from_its_calls,
    pruned_calls_stay_spent,
    budgets_of_what_is_deleted_are_removed,
    parallel_calls_share_a_budget,
);

impl Paying {
    pub(super) async fn set_budget(&self, change: BudgetChange) -> BudgetState {
        self.ledger.set_budget(change).await.unwrap()
    }

    pub(super) async fn budgets(&self) -> Vec<BudgetState> {
        self.ledger.budgets(&self.account_id).await.unwrap()
    }

    /// What is spent and held of the account's first budget.
    pub(super) async fn counted(&self) -> (i64, i64) {
        let budgets = self.budgets().await;
        (budgets[0].spent.nanos(), budgets[0].held.nanos())
    }

    pub(super) fn of_account(&self, period: Period, nanos: i64) -> BudgetChange {
        budget_of_account(&self.account_id, period, nanos)
    }

    /// Another key of the same account.
    pub(super) async fn with_key(&self, new: NewKey) -> Self {
        let created = self.ledger.create_key(&self.account_id, new, MAX_KEYS);
        let (key, _) = created.await.unwrap();
        let other = Self {
            key_id: key.id,
            payer: key.payer,
            digest: key.digest,
            ..self.with(self.ledger.clone())
        };
        other.refresh().await;
        other
    }

    pub(super) async fn over_budget(&self, amount: i64) -> Vec<BudgetShortage> {
        match self.hold(amount, amount, 0).await {
            Err(HoldRefused::OverBudget(budgets)) => budgets,
            other => panic!("{:?}", other.err()),
        }
    }

    pub(super) async fn cost(&self, nanos: i64) {
        let mut held = self.hold(nanos, nanos, 0).await.unwrap();
        charge(&mut held, nanos).await.unwrap();
    }
}

async fn a_budget_is_spent_to_the_last_nano_dollar_and_no_further(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    paying
        .set_budget(paying.of_account(Period::Month, 100))
        .await;
    let held = paying.hold(60, 60, 0).await.unwrap();
    paying.over_budget(41).await;
    paying.cost(40).await;
    paying.over_budget(1).await;
    // Nothing is left: not even a call that holds nothing may start.
    paying.over_budget(0).await;
    drop(held);
    paying.cost(60).await;
    assert_eq!(paying.counted().await, (100, 0));
    paying.over_budget(0).await;
    assert_eq!(paying.balance().await, DOLLAR - 100);
    paying.assert_sound().await;
}

async fn a_refusal_has_the_figures_of_the_ledger(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let change = BudgetChange {
        name: "team".into(),
        ..paying.of_account(Period::Week, 100)
    };
    let set = paying.set_budget(change).await;
    paying.cost(30).await;
    let held = paying.hold(25, 35, 10).await.unwrap();
    let refused = paying.over_budget(46).await;
    let [shortage] = &refused[..] else {
        panic!("{refused:?}")
    };
    assert_eq!((&*shortage.id, &*shortage.name), (&*set.budget.id, "team"));
    assert_eq!(shortage.scope, BudgetScope::Account);
    assert_eq!(shortage.scope_id, paying.account_id);
    assert_eq!(shortage.period, Period::Week);
    let amounts = [
        shortage.amount,
        shortage.spent,
        shortage.held,
        shortage.exposure,
    ];
    assert_eq!(amounts.map(NanoUsd::nanos), [100, 30, 25, 10]);
    assert_eq!(shortage.resets_at, set.period.ends_at);
    let usd = NanoUsd::new;
    let covers = |amount| shortage.covers(usd(amount), usd(amount), usd(0));
    // Of the 45 that are not held, 10 are needed for what the running call may cost beyond its hold.
    assert_eq!((covers(35), covers(36)), (true, false));
    assert!(
        shortage.covers_alone(usd(70), usd(70), usd(0)),
        "only running calls"
    );
    assert!(!shortage.covers_alone(usd(71), usd(71), usd(0)));
    drop(held);
    paying.cost(70).await;
}

async fn what_calls_may_cost_beyond_their_holds_is_bounded(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    paying
        .set_budget(paying.of_account(Period::Total, 100))
        .await;
    // Each may cost 40 more than it holds; together at most what is left, and an overdraft of 50.
    let mut running = Vec::new();
    while running.len() < 10
        && let Ok(held) = paying.hold(10, 50, 50).await
    {
        running.push(held);
    }
    assert_eq!(running.len(), 3);
    for mut held in running {
        charge(&mut held, 50).await.unwrap();
    }
    assert_eq!(
        paying.counted().await,
        (150, 0),
        "the amount and the overdraft"
    );
    paying.over_budget(0).await;
    paying.assert_sound().await;
}

async fn a_soft_budget_refuses_nothing(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let change = BudgetChange {
        hard: false,
        ..paying.of_account(Period::Day, 100)
    };
    paying.set_budget(change).await;
    paying.cost(90).await;
    paying.cost(90).await;
    let state = paying.budgets().await.remove(0);
    assert_eq!((state.spent.nanos(), state.remaining().nanos()), (180, -80));
    assert_eq!(state.percent_spent(), 180);
    paying.assert_sound().await;
}

async fn a_call_counts_in_all_budgets_above_it(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let project = paying
        .ledger
        .create_project(&paying.account_id, "Search".into());
    let project = project.await.unwrap().id;
    let keys = [
        (None, None),
        (Some(project.clone()), Some("person_1".to_owned())),
        (Some(project.clone()), Some("person_2".to_owned())),
        (None, Some("person_1".to_owned())),
    ];
    let mut callers = Vec::new();
    for (project_id, member_id) in keys {
        let new = NewKey {
            project_id,
            member_id,
            ..NewKey::from("k")
        };
        callers.push(paying.with_key(new).await);
    }
    let places = [
        (BudgetScope::Account, paying.account_id.clone()),
        (BudgetScope::Project, "default".to_owned()),
        (BudgetScope::Project, project),
        (BudgetScope::Member, "person_1".to_owned()),
        (BudgetScope::Key, callers[1].key_id.clone()),
    ];
    for (scope, scope_id) in &places {
        let change = BudgetChange {
            scope: *scope,
            scope_id: scope_id.clone(),
            ..paying.of_account(Period::Total, 1_000)
        };
        paying.set_budget(change).await;
    }
    let mut running = Vec::new();
    for (caller, nanos) in callers.iter().zip([1, 10, 100, 200]) {
        caller.cost(nanos).await;
        running.push(caller.hold(2 * nanos, 2 * nanos, 0).await.unwrap());
    }
    let found: BTreeMap<_, _> = paying
        .budgets()
        .await
        .into_iter()
        .map(|it| {
            let budget = &it.budget;
            (
                (budget.scope, budget.scope_id.clone()),
                (it.spent.nanos(), it.held.nanos()),
            )
        })
        .collect();
    let expected = [(311, 622), (201, 402), (110, 220), (210, 420), (10, 20)];
    assert_eq!(found, places.into_iter().zip(expected).collect());
    // Whichever is the tightest refuses; the narrowest of several is named first.
    let scopes = |refused: Vec<BudgetShortage>| {
        let scopes = refused.into_iter().map(|it| it.scope);
        scopes.collect::<Vec<_>>()
    };
    let refused = callers[1].over_budget(500).await;
    assert_eq!(scopes(refused), [BudgetScope::Member, BudgetScope::Account]);
    let refused = callers[2].over_budget(500).await;
    assert_eq!(scopes(refused), [BudgetScope::Account]);
    drop(running);
    paying.cost(1).await;
    paying.assert_sound().await;
    for it in paying.budgets().await {
        assert_eq!(it.held.nanos(), 0);
    }
    // A key that moves takes nothing along: its calls stay where they were.
    let change = KeyChange {
        project_id: Edit::Clear,
        ..KeyChange::default()
    };
    paying
        .ledger
        .change_key(&callers[1].key_id, change)
        .await
        .unwrap();
    paying.assert_sound().await;
}

async fn a_budget_counts_what_was_spent_and_is_held_before_it(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let other = paying.with_key("other".into()).await;
    paying.cost(500).await;
    paying.advance(86_400);
    paying.cost(30).await;
    other.cost(70).await;
    let running = [
        paying.hold(5, 8, 0).await.unwrap(),
        other.hold(1, 1, 0).await.unwrap(),
    ];
    let change = BudgetChange {
        scope: BudgetScope::Key,
        scope_id: paying.key_id.clone(),
        ..paying.of_account(Period::Day, 100)
    };
    let set = paying.set_budget(change.clone()).await;
    assert_eq!(
        (set.spent.nanos(), set.held.nanos()),
        (30, 5),
        "of this key, today"
    );
    let total = BudgetChange {
        schedule: Schedule::new(Period::Total, None, None).unwrap(),
        ..change
    };
    let total = paying.set_budget(total).await;
    let found = (total.spent.nanos(), total.held.nanos());
    assert_eq!(
        found,
        (30, 5),
        "held and charged at the second in which it was made"
    );
    for held in running {
        held.release(Outcome::ProviderFailed, None);
    }
    // After the releases, which are not waited for.
    paying.cost(1).await;
    assert_eq!(paying.counted().await, (31, 0));
    paying.assert_sound().await;
}

async fn changes_apply_to_the_next_hold(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let gateways = match &*paying.ledger {
        Ledger::Shared(_) => paying.beside().await,
        Ledger::Embedded(_) => paying.with(paying.ledger.clone()),
    };
    let set = paying
        .set_budget(paying.of_account(Period::Month, 100))
        .await;
    let mut held = gateways.hold(80, 80, 0).await.unwrap();
    let lowered = paying
        .set_budget(paying.of_account(Period::Month, 50))
        .await;
    assert_eq!(lowered.budget.id, set.budget.id);
    assert_eq!(lowered.remaining().nanos(), -30);
    gateways.over_budget(1).await;
    charge(&mut held, 60).await.unwrap();
    gateways.over_budget(1).await;
    paying
        .set_budget(paying.of_account(Period::Month, 61))
        .await;
    gateways.cost(1).await;
    gateways.over_budget(1).await;
    // Another anchor is another period, in which all of it counts or nothing.
    let moved = BudgetChange {
        schedule: Schedule::new(Period::Month, Some("Europe/Berlin"), Some(15)).unwrap(),
        ..paying.of_account(Period::Month, 61)
    };
    let moved = paying.set_budget(moved).await;
    assert_eq!(moved.budget.id, set.budget.id);
    assert_eq!((moved.spent.nanos(), paying.budgets().await.len()), (61, 1));
    let removed = paying.ledger.remove_budget(&set.budget.id).await.unwrap();
    assert_eq!(removed.id, set.budget.id);
    gateways.cost(1).await;
    let again = paying.ledger.remove_budget(&set.budget.id).await;
    assert!(matches!(
        again,
        Err(LedgerError::NotFound { what: "budget", .. })
    ));
    assert!(paying.budgets().await.is_empty());
    paying.assert_sound().await;
}

async fn released_and_cancelled_calls_count_no_longer(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    paying.set_budget(paying.of_account(Period::Day, 100)).await;
    let held = paying.hold(100, 100, 0).await.unwrap();
    held.release(Outcome::ProviderFailed, None);
    let held = paying.hold(100, 100, 0).await.unwrap();
    held.cancel();
    let mut held = paying.hold(100, 100, 0).await.unwrap();
    charge(&mut held, 0).await.unwrap();
    drop(paying.hold(100, 100, 0).await.unwrap());
    paying.cost(100).await;
    assert_eq!(paying.counted().await, (100, 0));
    paying.assert_sound().await;
}

async fn budgets_survive_a_restart(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let change = BudgetChange {
        name: "naïve \u{1F600}".into(),
        schedule: Schedule::new(Period::Week, Some("America/Havana"), Some(7)).unwrap(),
        thresholds: vec![33, 100],
        ..paying.of_account(Period::Week, 100)
    };
    paying.set_budget(change).await;
    paying.cost(30).await;
    let before = paying.budgets().await;
    let paying = paying.restart().await;
    assert_eq!(paying.budgets().await, before);
    // With calls in the redo log, which a new process reads.
    for _ in 0..7 {
        paying.cost(10).await;
    }
    let paying = paying.restart().await;
    assert_eq!(paying.counted().await, (100, 0));
    paying.over_budget(1).await;
    paying.assert_sound().await;
}

async fn budgets_stand_only_at_what_the_account_has(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let other = paying.neighbour(DOLLAR).await;
    let project = paying
        .ledger
        .create_project(&other.account_id, "theirs".into());
    let (theirs, of_key) = (project.await.unwrap().id, other.key_id.clone());
    for (scope, scope_id, missing) in [
        (BudgetScope::Account, other.account_id.clone(), "account"),
        (BudgetScope::Project, theirs, "project"),
        (BudgetScope::Project, "proj_0".into(), "project"),
        (BudgetScope::Key, of_key, "key"),
        (BudgetScope::Key, "key_0".into(), "key"),
    ] {
        let change = BudgetChange {
            scope,
            scope_id,
            ..paying.of_account(Period::Day, 1)
        };
        let refused = paying.ledger.set_budget(change).await;
        let is_missing = |what: &str| what == missing;
        assert!(
            matches!(&refused, Err(LedgerError::NotFound { what, .. }) if is_missing(what)),
            "{refused:?}"
        );
    }
    let nobody = budget_of_account("acct_0", Period::Day, 1);
    let refused = paying.ledger.set_budget(nobody).await;
    assert!(matches!(
        refused,
        Err(LedgerError::NotFound {
            what: "account",
            ..
        })
    ));
    assert!(paying.budgets().await.is_empty());
    paying.cost(5).await;
    // A closed account keeps its budgets.
    paying.set_budget(paying.of_account(Period::Day, 1)).await;
    let close = AccountChange {
        closed: Some(true),
        ..AccountChange::default()
    };
    paying
        .ledger
        .change_account(&paying.account_id, close)
        .await
        .unwrap();
    assert_eq!(paying.budgets().await.len(), 1);
}

async fn an_audit_finds_a_budget_that_differs_from_its_calls(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let set = paying
        .set_budget(paying.of_account(Period::Month, 100))
        .await;
    paying.cost(30).await;
    paying.assert_sound().await;
    paying.sql("UPDATE budgets SET spent_nano_usd = spent_nano_usd - 1");
    let audit = paying.ledger.audit().await.unwrap();
    let found: Vec<_> = audit.violations.iter().map(|it| &*it.what).collect();
    assert!(
        found
            .iter()
            .any(|what| what.contains(&set.budget.id) && what.contains("its calls have cost 30")),
        "{found:?}"
    );
    assert_eq!(audit.violations[0].account_id, paying.account_id);
    // A new one sums up the calls.
    paying.ledger.remove_budget(&set.budget.id).await.unwrap();
    paying
        .set_budget(paying.of_account(Period::Month, 100))
        .await;
    paying.assert_sound().await;
}

async fn pruned_calls_stay_spent(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    paying
        .set_budget(paying.of_account(Period::Total, 100))
        .await;
    paying.cost(60).await;
    paying.advance(40 * 86_400);
    paying.cost(10).await;
    paying.assert_sound().await;
    let before = Month::of_ms(paying.now_ms.load(Relaxed));
    assert!(paying.ledger.prune(before).await.unwrap().calls > 0);
    assert_eq!(paying.counted().await, (70, 0));
    paying.refresh().await;
    paying.over_budget(31).await;
    // A change keeps what counts, though the calls are gone.
    let changed = paying
        .set_budget(paying.of_account(Period::Total, 101))
        .await;
    assert_eq!(changed.spent.nanos(), 70);
    paying.cost(31).await;
    paying.over_budget(1).await;
    paying.assert_sound().await;
}

async fn budgets_of_what_is_deleted_are_removed(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let project = paying
        .ledger
        .create_project(&paying.account_id, "Search".into());
    let project = project.await.unwrap().id;
    for (scope, scope_id) in [
        (BudgetScope::Account, &paying.account_id),
        (BudgetScope::Project, &project),
        (BudgetScope::Key, &paying.key_id),
    ] {
        let change = BudgetChange {
            scope,
            scope_id: scope_id.clone(),
            ..paying.of_account(Period::Month, 100)
        };
        paying.set_budget(change).await;
    }
    let mut running = paying.hold(10, 10, 0).await.unwrap();
    paying.ledger.archive_project(&project).await.unwrap();
    let delete = paying
        .ledger
        .set_key_state(&paying.key_id, crate::ledger::KeyState::Deleted);
    delete.await.unwrap();
    charge(&mut running, 10).await.unwrap();
    let left = paying.budgets().await;
    let left: Vec<_> = left
        .iter()
        .map(|it| (it.budget.scope, it.spent.nanos()))
        .collect();
    assert_eq!(left, [(BudgetScope::Account, 10)]);
    paying.assert_sound().await;
}

/// 200 calls at once, on each of several gateways where the store is shared, against a budget for exactly 50 of them.
async fn parallel_calls_share_a_budget(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let change = BudgetChange {
        scope: BudgetScope::Key,
        scope_id: paying.key_id.clone(),
        ..paying.of_account(Period::Month, 50 * 1_000)
    };
    paying.set_budget(change).await;
    paying
        .set_budget(paying.of_account(Period::Day, 70 * 1_000))
        .await;
    let mut gateways = vec![paying.with(paying.ledger.clone())];
    if matches!(*paying.ledger, Ledger::Shared(_)) {
        gateways.push(paying.beside().await);
        gateways.push(paying.beside().await);
    }
    let gateways: Vec<_> = gateways.into_iter().map(Arc::new).collect();
    let calls = (0..200).map(|n| {
        let gateway = gateways[n % gateways.len()].clone();
        tokio::spawn(async move {
            match gateway.hold(1_000, 1_000, 0).await {
                Ok(mut held) => {
                    charge(&mut held, 1_000).await.unwrap();
                    1
                }
                Err(HoldRefused::OverBudget(_)) => 0,
                Err(other) => panic!("{other:?}"),
            }
        })
    });
    let mut charged = 0;
    for call in calls.collect::<Vec<_>>() {
        charged += call.await.unwrap();
    }
    assert_eq!(charged, 50);
    let found: Vec<_> = paying
        .budgets()
        .await
        .into_iter()
        .map(|it| it.spent.nanos())
        .collect();
    assert_eq!(found, [50_000, 50_000]);
    assert_eq!(paying.balance().await, DOLLAR - 50_000);
    paying.assert_sound().await;
}
