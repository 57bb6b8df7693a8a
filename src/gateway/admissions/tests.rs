use std::{pin::pin, task::Poll};

use futures_util::poll;

use super::*;

const MAX_WAIT: Duration = Duration::from_secs(10);

/// As many permits as are given without waiting.
async fn fill(admissions: &Arc<Admissions>) -> Vec<Permit> {
    let limit = admissions.state().limit.get();
    let mut permits = Vec::new();
    for _ in 0..limit {
        permits.push(admissions.enter().await.unwrap());
    }
    permits
}

/// Makes the first call of the queue look as if it had waited for this long.
fn age_queue(admissions: &Admissions, by: Duration) {
    for waiting in &mut admissions.state().queue {
        waiting.since -= by;
    }
}

#[tokio::test]
async fn calls_over_the_limit_are_let_in_in_their_order() {
    let admissions = Admissions::new(MAX_WAIT);
    let mut permits = fill(&admissions).await;
    let mut first = pin!(admissions.enter());
    let mut second = pin!(admissions.enter());
    assert!(poll!(first.as_mut()).is_pending());
    assert!(poll!(second.as_mut()).is_pending());
    assert_eq!(admissions.counts(), (permits.len(), 2));
    drop(permits.pop());
    assert!(poll!(second.as_mut()).is_pending(), "not before the first");
    let Poll::Ready(Ok(first)) = poll!(first.as_mut()) else {
        panic!("the first has a permit");
    };
    drop(first);
    assert!(matches!(poll!(second.as_mut()), Poll::Ready(Ok(_))));
}

#[tokio::test]
async fn callers_that_leave_lose_no_permit() {
    let admissions = Admissions::new(MAX_WAIT);
    let mut permits = fill(&admissions).await;
    let limit = permits.len();
    // One leaves while it waits, one after it was given a permit that it has not taken.
    let mut left = Box::pin(admissions.enter());
    let mut given = Box::pin(admissions.enter());
    let mut stays = pin!(admissions.enter());
    assert!(poll!(left.as_mut()).is_pending());
    assert!(poll!(given.as_mut()).is_pending());
    assert!(poll!(stays.as_mut()).is_pending());
    drop(left);
    drop(permits.pop());
    drop(given);
    assert!(matches!(poll!(stays.as_mut()), Poll::Ready(Ok(_))));
    drop(permits);
    assert_eq!(admissions.counts(), (0, 0));
    assert_eq!(fill(&admissions).await.len(), limit);
}

#[tokio::test]
async fn while_the_queue_is_too_slow_new_calls_are_refused_at_once() {
    let admissions = Admissions::new(MAX_WAIT);
    let mut permits = fill(&admissions).await;
    let mut waits = pin!(admissions.enter());
    assert!(poll!(waits.as_mut()).is_pending());
    age_queue(&admissions, MAX_WAIT * 2);
    assert!(!admissions.is_full(), "no call has asked yet");
    let mut refused = pin!(admissions.enter());
    assert!(matches!(
        poll!(refused.as_mut()),
        Poll::Ready(Err(Overloaded))
    ));
    assert!(admissions.is_full());
    // It is over as soon as the queue moves.
    drop(permits.pop());
    assert!(!admissions.is_full());
    let mut next = pin!(admissions.enter());
    assert!(poll!(next.as_mut()).is_pending(), "it waits");
    assert!(matches!(poll!(waits.as_mut()), Poll::Ready(Ok(_))));
}

/// A store that does not respond must not leave calls waiting for ever.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_too_long_is_refused() {
    let admissions = Admissions::new(MAX_WAIT);
    let permits = fill(&admissions).await;
    let begun = tokio::time::Instant::now();
    assert_eq!(admissions.enter().await.err(), Some(Overloaded));
    assert_eq!(begun.elapsed().as_secs(), 20);
    drop(permits);
    assert_eq!(admissions.counts(), (0, 0));
    assert!(admissions.enter().await.is_ok());
}

/// An admission of a call that took this long.
#[tokio::test]
async fn the_limit_grows_with_permits_of_admitted_calls() {
    for is_admitted in [false, true] {
        let admissions = Admissions::new(MAX_WAIT);
        let permits = fill(&admissions).await;
        let limit = permits.len();
        let mut waiting: Vec<_> = (0..2 * limit)
            .map(|_| Box::pin(admissions.enter()))
            .collect();
        for waiting in &mut waiting {
            assert!(poll!(waiting.as_mut()).is_pending());
        }
        for permit in permits {
            if is_admitted {
                permit.admitted();
            }
        }
        assert_eq!(admissions.state().limit.get() > limit, is_admitted);
    }
}

fn ended(took: Duration, at: Instant) -> Ended {
    Ended {
        took,
        at,
        is_admitted: true,
    }
}

#[test]
fn the_limit_grows_with_fast_admissions_and_shrinks_with_slow_ones() {
    let (fast, slow) = (Duration::from_millis(5), Duration::from_millis(80));
    let mut limit = ConcurrencyLimit::default();
    let start = limit.get();
    let mut now = Instant::now();
    for _ in 0..10_000 {
        limit.adjust(ended(fast, now), false);
    }
    assert_eq!(limit.get(), start, "no call waits");
    for _ in 0..10_000 {
        let refused = Ended {
            is_admitted: false,
            ..ended(fast, now)
        };
        limit.adjust(refused, true);
    }
    assert_eq!(limit.get(), start, "refusals say nothing of the stores");
    for _ in 0..10_000 {
        limit.adjust(ended(fast, now), true);
    }
    let grown = limit.get();
    assert!(grown > 2 * start, "{grown}");
    for _ in 0..100 {
        limit.adjust(ended(slow, now), true);
    }
    assert_eq!(limit.get(), grown * 3 / 4, "once for what began together");
    for _ in 0..100 {
        now += Duration::from_millis(100);
        limit.adjust(ended(slow, now), true);
    }
    assert!(limit.get() < start);
}

/// Stores that are far away from the start, or since a failover, are not taken for slow ones.
#[test]
fn far_stores_do_not_keep_the_limit_low() {
    for fastest in [120, 2] {
        let mut limit = ConcurrencyLimit::default();
        let (start, mut now) = (limit.get(), Instant::now());
        limit.adjust(ended(Duration::from_millis(fastest), now), true);
        for _ in 0..20_000 {
            now += Duration::from_millis(5);
            limit.adjust(ended(Duration::from_millis(120), now), true);
        }
        assert!(limit.get() > 4 * start, "{}", limit.get());
    }
}
