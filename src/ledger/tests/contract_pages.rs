//! Paged lists, on both backends: every row once, and none of another account.

use super::*;
use crate::ledger::{CallId, Entry, EntryKind};

contract!(
    pages_go_through_all_calls_once,
    calls_are_found_by_key_model_and_outcome,
    odd_names_find_no_calls,
    calls_added_meanwhile_neither_repeat_nor_hide_one,
    a_call_is_returned_in_full,
    pages_go_through_all_entries,
);

async fn pages_go_through_all_calls_once(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    let (mut own, mut all) = (Vec::new(), Vec::new());
    // Two long calls, started before the others and ended after them.
    let mut long = vec![paying.hold(COST, COST, 0).await.unwrap()];
    long.push(paying.hold(COST, COST, 0).await.unwrap());
    for times in [9, 1, 5] {
        for _ in 0..times {
            own.push(paying.pay().await.unwrap().id);
            all.push(own[own.len() - 1]);
            all.push(neighbour.pay().await.unwrap().id);
        }
        paying.advance(1);
    }
    for mut held in long.into_iter().rev() {
        own.push(charge(&mut held, COST).await.unwrap().id);
        all.push(own[own.len() - 1]);
        paying.advance(1);
    }
    own.reverse();
    all.reverse();
    for limit in [1, 2, 3, 16, 17, 18, 100] {
        let page = CallsPage {
            limit,
            ..CallsPage::default()
        };
        assert_eq!(walk(&paying.ledger, page).await, all, "{limit} a page");
        let account_id = Some(paying.account_id.as_str());
        let page = CallsPage { account_id, ..page };
        assert_eq!(walk(&paying.ledger, page).await, own, "{limit} a page");
    }
    let none = paying.ledger.calls_page(&CallsPage::default()).await;
    assert!(none.unwrap().calls.is_empty(), "with limit zero");
}

async fn calls_are_found_by_key_model_and_outcome(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    let made = paying
        .ledger
        .create_key(&paying.account_id, "second".into(), MAX_KEYS);
    let second = made.await.unwrap().0.id;
    let unused = paying
        .ledger
        .create_key(&paying.account_id, "unused".into(), MAX_KEYS);
    let unused = unused.await.unwrap().0.id;
    let outcomes = [
        Outcome::Answered,
        Outcome::ProviderFailed,
        Outcome::Answered,
        Outcome::ClientLeft,
        Outcome::Stopped,
    ];
    let mut made = Vec::new();
    for at in 0..40 {
        let payer = if at % 4 == 3 { &neighbour } else { &paying };
        let key_id = match at % 4 {
            1 => &second,
            _ => &payer.key_id,
        };
        let model = ["large", "small", "tiny"][at / 2 % 3];
        let outcome = outcomes[at % outcomes.len()];
        let request = payer.request(COST, COST, 0);
        let request = HoldRequest {
            payer: &Payer::service(key_id),
            secret: payer.ledger.key(key_id).await.unwrap().digest,
            model,
            ..request
        };
        let mut held = payer.ledger.hold(request).await.unwrap();
        made.push((
            payer.account_id.as_str(),
            key_id.as_str(),
            model,
            outcome,
            held.id(),
        ));
        match outcome {
            Outcome::Answered | Outcome::ClientLeft => {
                charge_for(&mut held, tokens(COST), outcome).await.unwrap();
            }
            _ => drop(held.release(outcome, None)),
        }
        // Over several days, most of them at the same time as others.
        paying.advance(if at % 8 == 7 { 30_000 } else { 0 });
    }
    let accounts = [None, Some(&paying.account_id), Some(&neighbour.account_id)];
    let keys = [
        None,
        Some(&paying.key_id),
        Some(&second),
        Some(&unused),
        Some(&neighbour.key_id),
    ];
    let models = [None, Some("large"), Some("small"), Some("none")];
    let outcomes = [
        None,
        Some(Outcome::Answered),
        Some(Outcome::ProviderFailed),
        Some(Outcome::Stopped),
        Some(Outcome::Lost),
    ];
    for account_id in accounts.map(|id| id.map(String::as_str)) {
        for key_id in keys.map(|id| id.map(String::as_str)) {
            for (model, outcome) in models.iter().flat_map(|model| {
                let each = outcomes.iter();
                each.map(|outcome| (*model, *outcome))
            }) {
                let page = CallsPage {
                    account_id,
                    key_id,
                    model,
                    outcome,
                    limit: 3,
                    ..CallsPage::default()
                };
                let wanted = made.iter().rev().filter(|(account, key, name, end, _)| {
                    account_id.is_none_or(|id| id == *account)
                        && key_id.is_none_or(|id| id == *key)
                        && model.is_none_or(|id| id == *name)
                        && outcome.is_none_or(|outcome| outcome == *end)
                });
                let wanted: Vec<CallId> = wanted.map(|(.., id)| *id).collect();
                assert_eq!(walk(&paying.ledger, page).await, wanted, "{page:?}");
            }
        }
    }
}

/// Unknown names, some of which have a special meaning in SQL.
async fn odd_names_find_no_calls(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    paying.pay().await.unwrap();
    let all = CallsPage {
        limit: 5,
        ..CallsPage::default()
    };
    let account_id = Some(paying.account_id.as_str());
    for odd in ["acct_0", "", "odd\0 name", "' OR true --", "%"].map(Some) {
        for page in [
            CallsPage {
                account_id: odd,
                ..all
            },
            CallsPage { key_id: odd, ..all },
            CallsPage { model: odd, ..all },
            CallsPage {
                account_id,
                model: odd,
                ..all
            },
        ] {
            assert!(walk(&paying.ledger, page).await.is_empty(), "{page:?}");
        }
    }
}

async fn calls_added_meanwhile_neither_repeat_nor_hide_one(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let mut made = Vec::new();
    for _ in 0..7 {
        made.push(paying.pay().await.unwrap().id);
    }
    made.reverse();
    let mut page = CallsPage {
        account_id: Some(&paying.account_id),
        limit: 2,
        ..CallsPage::default()
    };
    let mut seen = Vec::new();
    loop {
        let calls = paying.ledger.calls_page(&page).await.unwrap().calls;
        let Some(last) = calls.last() else { break };
        page.before = Some((last.ended_ms, last.id));
        seen.extend(calls.iter().map(|call| call.id));
        paying.pay().await.unwrap();
    }
    assert_eq!(seen, made);
}

async fn a_call_is_returned_in_full(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let decision = Some(r#"{"why":"cost"}"#.to_owned());
    let request = HoldRequest {
        decision: decision.clone(),
        ..paying.request(COST, COST, 0)
    };
    let mut held = paying.ledger.hold(request).await.unwrap();
    let made = charge(&mut held, COST).await.unwrap();
    let found = paying.ledger.call(made.id).await.unwrap().unwrap();
    assert_eq!((found.charged, found.decision), (made.charged, decision));
    let released = paying.hold(COST, COST, 0).await.unwrap();
    let id = released.id();
    assert!(paying.ledger.call(id).await.unwrap().is_none(), "it runs");
    released.release(Outcome::NoUsage, Some("none".into()));
    let found = paying.ledger.call(id).await.unwrap().unwrap();
    let found = (found.outcome, found.failure.as_deref());
    assert_eq!(found, (Outcome::NoUsage, Some("none")));
    for unknown in [CallId(0), CallId(u64::MAX)] {
        assert!(paying.ledger.call(unknown).await.unwrap().is_none());
    }
}

async fn pages_go_through_all_entries(store: TestStore) {
    let paying = Paying::on_with(store, 10 * COST).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    paying.give(70, Some(paying.now() + 5)).await;
    let first = paying.pay().await.unwrap();
    neighbour.pay().await.unwrap();
    paying.advance(10);
    paying.give(30, Some(paying.now() + 5)).await;
    paying.advance(10);
    let last = paying.pay().await.unwrap();

    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let before = entries.last().map(|entry| entry.seq);
        let page = paying.ledger.entries_page(&paying.account_id, before, 2);
        let page = page.await.unwrap();
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        entries.extend(page);
    }
    entries.reverse();
    assert!(entries.is_sorted_by(|one, next| one.seq < next.seq));
    let found: Vec<_> = entries
        .iter()
        .map(|entry| (entry.kind, entry.delta.nanos(), entry.at - 1_800_000_000))
        .collect();
    assert_eq!(
        found,
        [
            (EntryKind::Grant, 10 * COST, 0),
            (EntryKind::Grant, 70, 0),
            (EntryKind::Charge, -COST, 0),
            (EntryKind::Grant, 30, 10),
            (EntryKind::Expiry, -30, 20),
            (EntryKind::Charge, -COST, 20),
        ]
    );
    let mut balance = 0;
    for entry in &entries {
        balance += entry.delta.nanos();
        assert_eq!(entry.balance_after.nanos(), balance);
    }
    let grants = paying.ledger.grants(&paying.account_id).await.unwrap();
    let expected = [
        &grants[0].id,
        &grants[1].id,
        &first.id.to_string(),
        &grants[2].id,
        &grants[2].id,
        &last.id.to_string(),
    ];
    let references: Vec<_> = entries.iter().map(|entry| &entry.reference).collect();
    assert_eq!(references, expected);
    for (account, limit) in [("acct_0", 5), ("odd\0", 5), (paying.account_id.as_str(), 0)] {
        let none = paying.ledger.entries_page(account, None, limit).await;
        assert_eq!(none.unwrap(), [], "{account}");
    }
}
