//! Sums by day, key and model, on both backends: every call once, whatever its outcome.

use super::*;

contract!(
    sums_are_those_of_the_calls,
    sums_are_by_day,
    sums_are_of_one_account,
    sums_of_concurrent_calls_are_current,
    the_last_use_of_keys_is_returned,
);

const USAGE: Usage = Usage {
    prompt: 100,
    cached: 40,
    cache_write: 0,
    cache_write_1h: 0,
    completion: 10,
    reasoning: 4,
};

async fn hold_with(paying: &Paying, key_id: &str, model: &str) -> Held {
    let request = paying.request(COST, COST, 0);
    let request = HoldRequest {
        payer: &Payer::service(key_id),
        secret: paying.ledger.key(key_id).await.unwrap().digest,
        model,
        ..request
    };
    paying.ledger.hold(request).await.unwrap()
}

async fn second_key(paying: &Paying) -> String {
    let made = paying
        .ledger
        .create_key(&paying.account_id, "second".into(), MAX_KEYS);
    made.await.unwrap().0.id
}

/// The sums of a day, added up without the names that they are not of.
fn merged(rows: &[DayUse], sums_of: SumsOf) -> Vec<DayUse> {
    if sums_of == SumsOf::Each {
        return rows.to_vec();
    }
    let mut all = BTreeMap::<String, DayUse>::new();
    for row in rows {
        let kept = |name: &String, of| {
            if sums_of == of {
                name.clone()
            } else {
                String::new()
            }
        };
        let names = [
            kept(&row.model, SumsOf::Model),
            kept(&row.key_id, SumsOf::Key),
            kept(&row.project_id, SumsOf::Project),
        ];
        let sum = all.entry(names.concat()).or_insert_with(|| {
            let [model, key_id, project_id] = names;
            DayUse {
                day: row.day.clone(),
                model,
                key_id,
                project_id,
                calls: 0,
                charged: 0,
                prompt: 0,
                cached: 0,
                completion: 0,
                reasoning: 0,
                cost: NanoUsd::default(),
                last_ms: 0,
            }
        });
        sum.calls += row.calls;
        sum.charged += row.charged;
        sum.prompt += row.prompt;
        sum.cached += row.cached;
        sum.completion += row.completion;
        sum.reasoning += row.reasoning;
        sum.cost = NanoUsd::new(sum.cost.nanos() + row.cost.nanos());
        sum.last_ms = sum.last_ms.max(row.last_ms);
    }
    all.into_values().collect()
}

async fn sums_are_those_of_the_calls(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    assert_eq!(paying.days().await, []);
    let (key, second) = (paying.key_id.clone(), second_key(&paying).await);
    for outcome in [Outcome::Answered, Outcome::ClientLeft] {
        let mut held = hold_with(&paying, &key, "large").await;
        paying.advance(1);
        charge_for(&mut held, USAGE, outcome).await.unwrap();
    }
    let failed = hold_with(&paying, &key, "large").await;
    paying.advance(1);
    failed.release(Outcome::ProviderFailed, None);
    drop(hold_with(&paying, &second, "large").await);
    hold_with(&paying, &second, "large").await.cancel();
    let mut held = hold_with(&paying, &second, "small").await;
    charge_for(&mut held, USAGE, Outcome::Answered)
        .await
        .unwrap();

    drop(held);

    let sum = |key_id: &str, model: &str, calls, charged: u32| DayUse {
        day: "2027-01-15".into(),
        project_id: "default".into(),
        key_id: key_id.into(),
        model: model.into(),
        calls,
        charged: charged.into(),
        prompt: (charged * USAGE.prompt).into(),
        cached: (charged * USAGE.cached).into(),
        completion: (charged * USAGE.completion).into(),
        reasoning: (charged * USAGE.reasoning).into(),
        // The others cost nothing.
        cost: NanoUsd::new((charged * (USAGE.prompt - USAGE.cached)).into()),
        last_ms: 1_800_000_003_000,
    };
    let mut expected = [sum(&key, "large", 3, 2), sum(&second, "large", 1, 0)];
    expected.sort_by(|one, other| one.key_id.cmp(&other.key_id));
    let [one, other] = expected;
    let expected = [one, other, sum(&second, "small", 1, 1)];
    assert_eq!(paying.days().await, expected);
    assert_eq!(paying.days().await, expected, "queried again");
    for sums_of in [
        SumsOf::Day,
        SumsOf::Model,
        SumsOf::Key,
        SumsOf::Project,
        SumsOf::Each,
    ] {
        let all = ("2027-01-15", "2027-01-15");
        let read = paying.ledger.usage_days(&paying.account_id, all, sums_of);
        assert_eq!(
            read.await.unwrap(),
            merged(&expected, sums_of),
            "{sums_of:?}"
        );
    }
    paying.assert_added_up().await;
    let paying = paying.restart().await;
    assert_eq!(paying.days().await, expected, "after a restart");
    paying.pay().await.unwrap();
    paying.assert_added_up().await;
}

async fn sums_are_by_day(store: TestStore) {
    let mut paying = Paying::on_with(store, DOLLAR).await;
    // It is eight o'clock; then a minute before midnight, a minute after it, and a day later.
    for wait in [0, 16 * 3_600 - 60, 120, 24 * 3_600] {
        paying.advance(wait);
        paying.pay().await.unwrap();
    }
    for _ in 0..2 {
        let between = async |from: &str, to: &str| {
            let days = paying
                .ledger
                .usage_days(&paying.account_id, (from, to), SumsOf::Each);
            let days = days.await.unwrap();
            let days = days.iter().map(|day| format!("{} {}", day.day, day.calls));
            days.collect::<Vec<_>>().join(", ")
        };
        let all = "2027-01-15 2, 2027-01-16 1, 2027-01-17 1";
        assert_eq!(between("2027-01-15", "2027-01-17").await, all);
        assert_eq!(between("2026-12-31", "2027-01-15").await, "2027-01-15 2");
        assert_eq!(between("2027-01-16", "2027-01-16").await, "2027-01-16 1");
        assert_eq!(between("2027-01-18", "2027-12-31").await, "");
        assert_eq!(between("2027-01-17", "2027-01-15").await, "");
        assert_eq!(between("no day", "at all").await, "");
        assert_eq!(between("2027-01-15\0", "2027-01-17").await, "");
        paying.assert_added_up().await;
        paying = paying.restart().await;
    }
}

async fn sums_are_of_one_account(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    paying.pay().await.unwrap();
    neighbour.pay().await.unwrap();
    neighbour.pay().await.unwrap();
    for (one, calls) in [(&paying, 1), (&neighbour, 2)] {
        let days = one.days().await;
        assert_eq!((days.len(), days[0].calls), (1, calls));
        assert_eq!(days[0].key_id, one.key_id);
        one.assert_added_up().await;
    }
    let unknown = paying
        .ledger
        .usage_days("acct_0", ("", "9999"), SumsOf::Each);
    assert_eq!(unknown.await.unwrap(), []);
}

/// A confirmed charge is in the sums at once, also with many concurrent calls.
async fn sums_of_concurrent_calls_are_current(store: TestStore) {
    let paying = Arc::new(Paying::on_with(store, DOLLAR).await);
    let callers = (0..8).map(|_| {
        let paying = paying.clone();
        tokio::spawn(async move {
            for confirmed in 1..=10 {
                paying.pay().await.unwrap();
                drop(paying.hold(COST, COST, 0).await.unwrap());
                let days = paying.days().await;
                assert!(
                    days[0].charged >= confirmed && days[0].calls >= 2 * confirmed,
                    "{days:?}"
                );
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    let days = paying.days().await;
    assert_eq!((days[0].calls, days[0].charged), (160, 80));
    assert_eq!(days[0].cost.nanos(), 80 * COST);
    paying.assert_added_up().await;
    let paying = Arc::into_inner(paying).unwrap().restart().await;
    assert_eq!(paying.days().await, days);
}

async fn the_last_use_of_keys_is_returned(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let second = second_key(&paying).await;
    let last_used = async |paying: &Paying| {
        let last = paying.ledger.last_used(&paying.account_id).await.unwrap();
        let of = |key: &str| last.get(key).map(|ms| ms - 1_800_000_000_000);
        (of(&paying.key_id), of(&second), last.len())
    };
    assert_eq!(last_used(&paying).await, (None, None, 0));
    paying.pay().await.unwrap();
    assert_eq!(last_used(&paying).await, (Some(0), None, 1));
    paying.advance(90_000);
    drop(hold_with(&paying, &second, "other").await);
    paying.advance(90_000);
    hold_with(&paying, &second, "other").await.cancel();
    paying.pay().await.unwrap();
    let expected = (Some(180_000_000), Some(90_000_000), 2);
    assert_eq!(last_used(&paying).await, expected);
    let neighbour = paying.neighbour(DOLLAR).await;
    assert_eq!(last_used(&neighbour).await, (None, None, 0));
    drop(neighbour);
    assert_eq!(last_used(&paying.restart().await).await, expected);
}
