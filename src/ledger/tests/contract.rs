//! The contract of the ledger: each case runs on both backends.

use super::*;
use crate::{
    base::rate::Ceilings,
    ledger::{
        AccountChange, AnalyticsFilter,
        Edit::{Clear, Keep, Set},
        KeyState,
    },
};

contract!(
    racing_holds_never_overdraw,
    charging_twice_charges_once,
    concurrent_charges_all_survive_a_restart,
    a_reference_gives_credit_once,
    a_key_that_was_disabled_holds_nothing,
    a_closed_account_holds_nothing,
    more_credit_than_an_account_can_hold_is_refused,
    limits_and_models_survive_a_restart,
    expired_credit_is_posted,
    a_grant_that_expires_pays_for_all_of_a_running_call,
    a_failed_call_is_recorded,
    only_the_inconsistent_account_is_frozen,
    created_records_can_be_looked_up,
    call_ids_continue_after_a_restart,
);

async fn racing_holds_never_overdraw(store: TestStore) {
    let paying = Arc::new(Paying::on_with(store, 60 * COST).await);
    let calls = (0..100).map(|_| {
        let paying = paying.clone();
        tokio::spawn(async move { paying.hold(COST, COST, 0).await })
    });
    let mut held = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        match call.await.unwrap() {
            Ok(one) => held.push(one),
            Err(refused) => {
                let HoldRefused::Short(shortage) = refused else {
                    panic!("{refused:?}");
                };
                assert_eq!(shortage.balance, NanoUsd::new(60 * COST));
                assert_eq!(shortage.expired_at, None);
            }
        }
    }
    assert_eq!(held.len(), 60);
    assert_eq!(
        paying.ledger.all_held(),
        (60, NanoUsd::new(60 * COST)),
        "as reported"
    );
    drop(held);
    assert_eq!(
        (paying.balance().await, paying.held().await),
        (60 * COST, 0)
    );
    assert_eq!(paying.ledger.all_held(), (0, NanoUsd::new(0)));
    paying.assert_sound().await;
}

async fn charging_twice_charges_once(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    let mut held = paying.hold(30, 30, 0).await.unwrap();
    let charged = charge(&mut held, 25).await.unwrap().charged.unwrap();
    assert_eq!(
        (
            charged.balance_before.nanos(),
            charged.balance_after.nanos()
        ),
        (100, 75)
    );
    let again = charge(&mut held, 25).await;
    assert!(matches!(again, Err(LedgerError::NoHold)));
    drop(held);
    assert_eq!((paying.balance().await, paying.held().await), (75, 0));
    paying.assert_sound().await;
}

async fn concurrent_charges_all_survive_a_restart(store: TestStore) {
    let paying = Arc::new(Paying::on_with(store, DOLLAR).await);
    let calls = (0..32).map(|_| {
        let paying = paying.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                let charged = paying.pay().await.unwrap().charged.unwrap();
                assert_eq!(charged.cost.nanos(), COST);
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let left = DOLLAR - 320 * COST;
    assert_eq!((paying.balance().await, paying.held().await), (left, 0));
    paying.assert_sound().await;
    let paying = Arc::into_inner(paying).unwrap().restart().await;
    assert_eq!(paying.balance().await, left);
    let rows = paying.ledger.usage(&paying.account_id, 0, i64::MAX).await;
    assert_eq!(rows.unwrap().len(), 320);
    paying.assert_sound().await;
}

async fn a_reference_gives_credit_once(store: TestStore) {
    let paying = Paying::on(store).await;
    let grant = |amount| NewGrant {
        amount: NanoUsd::new(amount),
        expires_at: None,
        reason: Some("paid".into()),
        reference: Some("invoice 1".into()),
    };
    let add = |amount| paying.ledger.add_grant(&paying.account_id, grant(amount));
    let first = add(100).await.unwrap();
    let again = add(100).await.unwrap();
    assert_eq!((first.id, again.reason), (again.id, Some("paid".into())));
    let other = add(99).await;
    assert!(matches!(other, Err(LedgerError::ReferenceTaken { .. })));
    assert_eq!(paying.balance().await, 100);
    let grants = paying.ledger.grants(&paying.account_id).await.unwrap();
    assert_eq!(grants.len(), 1);
    paying.assert_sound().await;
}

async fn a_key_that_was_disabled_holds_nothing(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let mut running = paying.hold(COST, COST, 0).await.unwrap();
    let set = |state| paying.ledger.set_key_state(&paying.key_id, state);
    set(KeyState::Disabled).await.unwrap();
    let refused = paying.hold(COST, COST, 0).await.err();
    assert_eq!(refused, Some(HoldRefused::KeyInactive));
    assert!(
        paying
            .ledger
            .fresh_caller(paying.digest)
            .await
            .unwrap()
            .is_none()
    );
    charge(&mut running, COST).await.expect("it had started");
    set(KeyState::Active).await.unwrap();
    assert!(paying.hold(COST, COST, 0).await.is_ok());
    set(KeyState::Deleted).await.unwrap();
    let back = set(KeyState::Active).await;
    assert!(matches!(back, Err(LedgerError::KeyDeleted)));
    let unknown = paying.ledger.set_key_state("key_0", KeyState::Active).await;
    assert!(matches!(unknown, Err(LedgerError::NotFound { .. })));
}

async fn a_closed_account_holds_nothing(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let close = |closed| AccountChange {
        closed: Some(closed),
        ..AccountChange::default()
    };
    let change = |closed| {
        let change = close(closed);
        paying.ledger.change_account(&paying.account_id, change)
    };
    assert!(change(true).await.unwrap().closed);
    let refused = paying.hold(COST, COST, 0).await.err();
    let balance = NanoUsd::new(DOLLAR);
    assert_eq!(refused, Some(HoldRefused::NoAccount { balance }));
    let caller = paying.ledger.fresh_caller(paying.digest).await.unwrap();
    assert!(caller.unwrap().account_closed);
    change(false).await.unwrap();
    assert!(paying.hold(COST, COST, 0).await.is_ok());
}

async fn more_credit_than_an_account_can_hold_is_refused(store: TestStore) {
    let paying = Paying::on_with(store, i64::MAX - 10).await;
    let grant = |nanos| {
        let grant = NewGrant {
            amount: NanoUsd::new(nanos),
            expires_at: None,
            reason: None,
            reference: None,
        };
        paying.ledger.add_grant(&paying.account_id, grant)
    };
    assert!(matches!(grant(11).await, Err(LedgerError::TooMuchCredit)));
    grant(10).await.unwrap();
    assert_eq!(paying.balance().await, i64::MAX);
    let mut held = paying.hold(i64::MAX, i64::MAX, 0).await.unwrap();
    charge(&mut held, COST).await.unwrap();
    assert_eq!(paying.balance().await, i64::MAX - COST);
    paying.assert_sound().await;
}

async fn limits_and_models_survive_a_restart(store: TestStore) {
    let paying = Paying::on(store).await;
    let (account, model) = (paying.account_id.clone(), "svc-standard".to_owned());
    let set = |account: Option<&String>, requests, tokens| {
        let (account, model) = (account.cloned(), Some(model.clone()));
        paying.ledger.set_limit(account, model, requests, tokens)
    };
    set(Some(&account), Set(5), Set(500)).await.unwrap();
    set(Some(&account), Keep, Set(700)).await.unwrap();
    set(None, Set(9), Keep).await.unwrap();
    set(None, Clear, Keep).await.unwrap();
    let settings = paying.ledger.set_model(&model, Some(false), None).await;
    assert!(!settings.unwrap().enabled);
    let settings = paying.ledger.set_model(&model, None, Some(true)).await;
    let before = settings.unwrap();
    assert_eq!((before.enabled, before.unlisted), (false, Some(true)));
    let rules = paying.ledger.limits();
    let paying = paying.restart().await;
    assert_eq!((paying.ledger.limits(), rules.len()), (rules, 1));
    let settings = paying.ledger.model_settings(&model);
    assert_eq!((settings.enabled, settings.unlisted), (false, Some(true)));
    let default = Ceilings {
        requests: 1,
        tokens: 1,
    };
    let ceilings = paying.ledger.ceilings(&account, &model, default);
    assert_eq!((ceilings.requests, ceilings.tokens), (5, 700));
    let ceilings = paying.ledger.ceilings("acct_other", &model, default);
    assert_eq!((ceilings.requests, ceilings.tokens), (1, 1));
}

/// The part of an expired grant that is not held is posted as an expiry, once, by whichever operation comes first.
async fn expired_credit_is_posted(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    paying.give(40, Some(paying.now() + 10)).await;
    let mut held = paying.hold(30, 30, 0).await.unwrap();
    paying.advance(10);
    let balance = paying.balance().await;
    assert_eq!(balance, 130, "ten have expired, thirty are held");
    charge(&mut held, 25).await.unwrap();
    drop(held);
    assert_eq!(paying.balance().await, 100);
    paying.assert_sound().await;
    paying.assert_sound().await;
    let expiries =
        "SELECT count(*) || ' ' || sum(delta_nano_usd) FROM ledger_entries WHERE kind = 'expiry'";
    assert_eq!(paying.sql(expiries), "2 -15");
    assert_eq!(paying.restart().await.balance().await, 100);
}

/// It pays also beyond the hold, but for no call that started later.
async fn a_grant_that_expires_pays_for_all_of_a_running_call(store: TestStore) {
    let paying = Paying::on_with(store, 20).await;
    paying.give(100, Some(paying.now() + 10)).await;
    let mut running = paying.hold(30, 80, 0).await.unwrap();
    paying.advance(10);
    let mut later = paying.hold(5, 20, 80).await.unwrap();
    charge(&mut later, 20).await.unwrap();
    assert_eq!(paying.held().await, 80, "all that the call may cost");
    charge(&mut running, 75).await.unwrap();
    drop((running, later));
    assert_eq!((paying.balance().await, paying.held().await), (0, 0));
    paying.assert_sound().await;
    let expiries = "SELECT sum(delta_nano_usd) FROM ledger_entries WHERE kind = 'expiry'";
    assert_eq!(paying.sql(expiries), "-25");
    assert_eq!(paying.restart().await.balance().await, 0);
}

/// A failed call leaves a record and no charge.
async fn a_failed_call_is_recorded(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    paying.hold(30, 30, 0).await.unwrap().cancel();
    let held = paying.hold(30, 30, 0).await.unwrap();
    let id = held.id().to_string();
    held.release(Outcome::ProviderFailed, Some("status 529".into()));
    drop(paying.hold(30, 30, 0).await.unwrap());
    let found = paying.ledger.find_calls(&id).await.unwrap();
    let [call] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(call.outcome, Outcome::ProviderFailed);
    assert_eq!(call.failure.as_deref(), Some("status 529"));
    assert_eq!(call.charged, None);
    let all = paying.ledger.find_calls("req_test").await.unwrap();
    let outcomes: Vec<_> = all.iter().map(|call| call.outcome).collect();
    assert_eq!(outcomes, [Outcome::Lost, Outcome::ProviderFailed]);
    assert_eq!((paying.balance().await, paying.held().await), (100, 0));
    assert_eq!(paying.sql("SELECT count(*) FROM ledger_entries"), "1");
}

/// Other accounts are not affected while one is frozen.
async fn only_the_inconsistent_account_is_frozen(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    paying.pay().await.unwrap();
    let other = paying
        .ledger
        .create_account(new_account())
        .await
        .unwrap()
        .id;
    paying.sql(&format!(
        "UPDATE accounts SET debt_nano_usd = 5 WHERE id = '{other}'"
    ));
    let audit = paying.ledger.audit().await.unwrap();
    let mut found = audit.violations.iter();
    assert!(found.all(|found| found.account_id == other));
    assert!(!audit.violations.is_empty());
    assert!(paying.ledger.is_frozen(&other).await.unwrap());
    assert_eq!(paying.ledger.violations(), 1);
    assert!(paying.hold(1, 1, 0).await.is_ok());
}

async fn created_records_can_be_looked_up(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let call = paying.pay().await.unwrap();
    let by_number = paying.ledger.find_calls(&call.id.to_string()).await;
    let used = paying.ledger.usage(&paying.account_id, 0, i64::MAX).await;
    for found in [by_number.unwrap(), used.unwrap()] {
        let found: Vec<_> = found
            .iter()
            .map(|found| (found.id, found.charged))
            .collect();
        assert_eq!(found, [(call.id, call.charged)]);
    }
    let filter = AnalyticsFilter {
        from_ms: 0,
        to_ms: i64::MAX,
        account_id: Some(paying.account_id.clone()),
        model: None,
    };
    let rows = paying.ledger.analytics(filter).await.unwrap();
    let [row] = rows.as_slice() else {
        panic!("{rows:?}")
    };
    assert_eq!(
        (row.day.as_str(), row.calls, row.charged),
        ("2027-01-15", 1, 1)
    );
    assert_eq!(row.cost.nanos(), COST);
    let account = paying.ledger.account(&paying.account_id).await.unwrap();
    assert_eq!(account.plan.tier(), Tier::Flex);
    assert_eq!(paying.ledger.accounts().await.unwrap().len(), 1);
    let keys = paying.ledger.keys(&paying.account_id).await.unwrap();
    assert_eq!(keys[0].digest, paying.digest);
    let unknown = paying.ledger.keys("acct_0").await;
    assert!(matches!(unknown, Err(LedgerError::NotFound { .. })));
    let unknown = paying
        .ledger
        .create_key("acct_0", "none".into(), MAX_KEYS)
        .await;
    assert!(matches!(unknown, Err(LedgerError::NotFound { .. })));
    let audit = paying.ledger.audit().await.unwrap();
    assert_eq!((audit.entries, audit.charges), (2, 1));
    assert_eq!(audit.accounts, std::slice::from_ref(&paying.account_id));
}

/// Also if the clock has stood still, or another gateway's clock was ahead.
async fn call_ids_continue_after_a_restart(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let before = paying.pay().await.unwrap().id;
    paying.advance(-5);
    let paying = paying.restart().await;
    assert!(paying.ledger.next_call() > before);
    paying.pay().await.unwrap();
    paying.assert_sound().await;
}
