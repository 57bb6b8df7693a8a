//! Sums that are written later than the calls: they wait, and none is lost.

use super::*;
use crate::ledger::tests::until;

const DAY: i64 = 24 * 60 * 60;

async fn over_three_days() -> Paying {
    let paying = with(DOLLAR).await;
    for _ in 0..3 {
        paying.pay().await.unwrap();
        paying.pay().await.unwrap();
        paying.advance(DAY);
    }
    paying.assert_added_up().await;
    paying
}

/// As a process that died leaves them: up to a second of sums is missing, at whatever hour it was.
#[tokio::test]
async fn sums_that_were_lost_are_added_up_anew() {
    let mut paying = over_three_days().await;
    let expected = paying.days().await;
    for lost in [
        "DELETE FROM usage_days WHERE day = '2027-01-17'",
        "DELETE FROM usage_days WHERE day >= '2027-01-16'",
        "UPDATE usage_days SET calls = 1, charged = 1, last_ms = 0 WHERE day = '2027-01-17'",
        "UPDATE usage_days SET cost = 0, prompt = 0 WHERE day = '2027-01-16'",
        "DELETE FROM usage_days",
    ] {
        paying.sql(lost);
        assert_ne!(paying.days().await, expected);
        paying = paying.restart().await;
        assert_eq!(paying.days().await, expected, "{lost}");
    }
}

#[tokio::test]
async fn days_of_long_ago_are_not_gone_through_at_each_start() {
    let paying = over_three_days().await;
    paying.sql("UPDATE usage_days SET cost = 7 WHERE day = '2027-01-15'");
    let paying = paying.restart().await;
    assert_eq!(paying.days().await[0].cost.nanos(), 7);
}

#[tokio::test]
async fn sums_that_cannot_be_written_wait_and_hold_up_no_charge() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    paying.assert_added_up().await;
    paying.sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON usage_days
         BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    paying.pay().await.unwrap();
    assert_eq!(paying.days().await[0].calls, 1, "what there is");
    paying.pay().await.unwrap();
    assert!(paying.ledger.health().takes_charges());
    paying.sql("DROP TRIGGER refuse");
    assert_eq!(paying.days().await[0].calls, 3);
    paying.assert_added_up().await;
    paying.restart().await.assert_added_up().await;
}

/// The same, where it is what an earlier process lost that cannot be written.
#[tokio::test]
async fn a_start_does_not_wait_for_sums_that_cannot_be_written() {
    let paying = over_three_days().await;
    let expected = paying.days().await;
    paying.sql(
        "DELETE FROM usage_days WHERE day = '2027-01-17';
         CREATE TRIGGER refuse BEFORE INSERT ON usage_days
         BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    let paying = paying.restart().await;
    assert_eq!(paying.days().await, expected[..2]);
    // Long after the day that is missing.
    paying.advance(9 * DAY);
    paying.pay().await.unwrap();
    paying.sql("DROP TRIGGER refuse");
    assert_eq!(paying.days().await[..3], expected);
    paying.assert_added_up().await;
}

#[tokio::test]
async fn sums_of_calls_that_came_to_nothing_are_forgotten() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    let call = paying
        .hold(COST, COST, 0)
        .await
        .unwrap()
        .free(Outcome::Lost, None);
    let call = call.unwrap();
    assert_eq!(paying.days().await[0].calls, 2);
    let other = crate::ledger::CallId(call.id.0 + 1);
    let broken = paying.embedded().writer.run(move |database, _| {
        database.insert_call(&crate::ledger::Call { id: other, ..call })?;
        Err::<(), _>(LedgerError::Database(rusqlite::Error::InvalidQuery))
    });
    assert!(broken.await.is_err());
    paying.until_charges_are_taken().await;
    assert_eq!(paying.days().await[0].calls, 2);
    paying.assert_added_up().await;
}

/// Told twice, a call counts once.
#[tokio::test]
async fn a_call_that_is_written_twice_counts_once() {
    let paying = with(DOLLAR).await;
    let call = paying.pay().await.unwrap();
    let again = paying
        .embedded()
        .writer
        .run(move |database, _| Ok(database.insert_call(&call)?));
    again.await.unwrap();
    assert_eq!(paying.days().await[0].calls, 1);
}

#[tokio::test]
async fn sums_are_written_though_nobody_asks() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    let written = "SELECT coalesce(sum(calls), 0) FROM usage_days";
    until("they are written", async || paying.sql(written) == "1").await;
    // Within a second of the last time.
    paying.pay().await.unwrap();
    paying.pay().await.unwrap();
    let place = paying.place.clone();
    drop(paying);
    assert_eq!(place.sql(written), "3", "when the ledger ends");
}
