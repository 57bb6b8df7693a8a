//! Periods of budgets on both backends: which of them a call counts in when a period turns while calls run.

use std::sync::atomic::AtomicBool;

use super::*;

contract!(
    what_runs_when_a_period_turns_counts_where_it_was_held,
    a_step_in_a_new_period_counts_there_as_a_whole,
    a_clock_that_is_set_back_begins_no_earlier_period,
    periods_turn_under_load,
);

async fn what_runs_when_a_period_turns_counts_where_it_was_held(store: TestStore) {
    // 15 January 2027, 08:00 UTC.
    let paying = Paying::on_with(store, DOLLAR).await;
    let first = paying.set_budget(paying.of_account(Period::Day, 100)).await;
    let mut over_midnight = paying.hold(90, 90, 0).await.unwrap();
    paying.advance(16 * 3_600 - 1);
    paying.over_budget(20).await;
    paying.advance(1);
    let next = paying.budgets().await.remove(0);
    assert_eq!(Some(next.period.starts_at), first.period.ends_at);
    assert_eq!((next.spent.nanos(), next.held.nanos()), (0, 0));
    paying.cost(100).await;
    charge(&mut over_midnight, 90).await.unwrap();
    drop(over_midnight);
    assert_eq!(paying.counted().await, (100, 0), "its day is over");
    paying.over_budget(1).await;
    paying.assert_sound().await;
    let paying = paying.restart().await;
    assert_eq!(paying.counted().await, (100, 0));
    paying.assert_sound().await;
    paying.advance(86_400);
    paying.cost(100).await;
}

async fn a_step_in_a_new_period_counts_there_as_a_whole(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    paying.set_budget(paying.of_account(Period::Day, 100)).await;
    let extend = async |held: &mut Held, nanos| {
        let amount = NanoUsd::new(nanos);
        held.extend(0, amount, amount, NanoUsd::default()).await
    };
    let mut held = paying.hold(90, 90, 0).await.unwrap();
    let refused = extend(&mut held, 101).await;
    assert!(
        matches!(refused, Err(HoldRefused::OverBudget(_))),
        "{refused:?}"
    );
    extend(&mut held, 95).await.unwrap();
    assert_eq!(paying.counted().await, (0, 95));
    paying.advance(86_400);
    paying.cost(2).await;
    let refused = extend(&mut held, 99).await;
    assert!(
        matches!(refused, Err(HoldRefused::OverBudget(_))),
        "{refused:?}"
    );
    extend(&mut held, 98).await.unwrap();
    assert_eq!(paying.counted().await, (2, 98));
    charge(&mut held, 97).await.unwrap();
    assert_eq!(paying.counted().await, (99, 0));
    paying.assert_sound().await;
}

async fn a_clock_that_is_set_back_begins_no_earlier_period(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    paying.set_budget(paying.of_account(Period::Day, 100)).await;
    paying.advance(86_400);
    paying.cost(60).await;
    paying.advance(-2 * 86_400);
    paying.cost(30).await;
    paying.over_budget(11).await;
    let paying = paying.restart().await;
    paying.refresh().await;
    paying.cost(10).await;
    paying.over_budget(1).await;
    assert_eq!(paying.counted().await, (100, 0));
    paying.assert_sound().await;
}

/// Calls at all times while the clock goes through the days around a change of the clock, and into another month.
async fn periods_turn_under_load(store: TestStore) {
    const DAY: i64 = 15_000;
    const MONTH: i64 = 70_000;
    let paying = Paying::on_with(store, DOLLAR).await;
    // Saturday, 27 March 2027, 16:00 UTC; the clock of Berlin changes that night.
    paying.advance(1_806_163_200 - paying.now());
    let schedule = |period| Schedule::new(period, Some("Europe/Berlin"), None).unwrap();
    for (period, nanos) in [(Period::Day, DAY), (Period::Month, MONTH)] {
        let change = BudgetChange {
            schedule: schedule(period),
            ..paying.of_account(period, nanos)
        };
        paying.set_budget(change).await;
    }
    let paying = Arc::new(paying);
    let is_over = Arc::new(AtomicBool::new(false));
    let (charged, refused) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let callers = (0..4).map(|_| {
        let (paying, is_over) = (paying.clone(), is_over.clone());
        let (charged, refused) = (charged.clone(), refused.clone());
        tokio::spawn(async move {
            while !is_over.load(Relaxed) {
                match paying.hold(1_000, 1_000, 0).await {
                    Ok(mut held) => {
                        charge(&mut held, 1_000).await.unwrap();
                        charged.fetch_add(1, Relaxed);
                    }
                    Err(HoldRefused::OverBudget(_)) => {
                        refused.fetch_add(1, Relaxed);
                        tokio::task::yield_now().await;
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    // Six days in steps of 47 minutes, each with calls, however busy the machine is.
    for _ in 0..184 {
        let tried = || charged.load(Relaxed) + refused.load(Relaxed);
        let before = tried();
        tokio::time::sleep(Duration::from_millis(5)).await;
        while tried() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        paying.advance(47 * 60);
    }
    // The last day is used up too.
    let before = refused.load(Relaxed);
    while refused.load(Relaxed) == before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    is_over.store(true, Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    paying.assert_sound().await;
    let paying = Arc::into_inner(paying).unwrap().restart().await;
    let calls = paying.sql("SELECT string_agg(held_at || ':' || cost_nano_usd, ',') FROM calls");
    for (period, most) in [(Period::Day, DAY), (Period::Month, MONTH)] {
        let mut spent: BTreeMap<i64, i64> = BTreeMap::new();
        for call in calls.split(',') {
            let (held_at, cost) = call.split_once(':').unwrap();
            let bounds = schedule(period).bounds(held_at.parse().unwrap(), 0);
            *spent.entry(bounds.starts_at).or_default() += cost.parse::<i64>().unwrap();
        }
        let periods = if period == Period::Day { 7 } else { 2 };
        assert_eq!(spent.len(), periods, "{period:?}: {spent:?}");
        assert!(
            spent.values().all(|spent| *spent <= most),
            "{period:?}: {spent:?}"
        );
        let is_used_up = spent.values().any(|spent| *spent == most);
        assert!(
            is_used_up || period == Period::Month,
            "{period:?}: {spent:?}"
        );
    }
    paying.assert_sound().await;
}
