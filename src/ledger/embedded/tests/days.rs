//! Calls that are entered later than they are charged: they wait, they count, and none is lost.

use super::{rows::as_rows, *};
use crate::{
    base::money::NanoUsd,
    ledger::{CallsPage, credit::Charge, embedded::sqlite::audit::books, tests::until},
};

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

/// As a version left them that entered calls at once.
const EARLIER: &str = "DROP TABLE new_calls; PRAGMA user_version = 8;";

/// When it died, up to a second of sums was missing, at whatever hour it was.
#[tokio::test]
async fn sums_that_an_earlier_version_lost_are_added_up_anew() {
    let mut paying = over_three_days().await;
    let expected = paying.days().await;
    for lost in [
        "DELETE FROM usage_days WHERE day = '2027-01-17'",
        "DELETE FROM usage_days WHERE day >= '2027-01-16'",
        "UPDATE usage_days SET calls = 1, charged = 1, last_ms = 0 WHERE day = '2027-01-17'",
        "UPDATE usage_days SET cost = 0, prompt = 0 WHERE day = '2027-01-16'",
        "DELETE FROM usage_days",
    ] {
        as_rows(&paying);
        paying.sql(&format!("{EARLIER} {lost}"));
        assert_ne!(paying.days().await, expected);
        paying = paying.restart().await;
        assert_eq!(paying.days().await, expected, "{lost}");
    }
}

/// A file is audited as it is, whichever version wrote it.
#[tokio::test]
async fn a_file_of_an_earlier_version_can_be_audited() {
    let paying = over_three_days().await;
    as_rows(&paying);
    paying.sql(EARLIER);
    let audit = audit_file(&paying.folder().path().join("ledger.db")).unwrap();
    assert_eq!((audit.charges, audit.violations), (6, Vec::new()));
}

#[tokio::test]
async fn days_of_long_ago_are_not_gone_through_again() {
    let paying = over_three_days().await;
    let changed = "UPDATE usage_days SET cost = 7 WHERE day = '2027-01-15'";
    as_rows(&paying);
    paying.sql(&format!("{EARLIER} {changed}"));
    let paying = paying.restart().await;
    assert_eq!(paying.days().await[0].cost.nanos(), 7);
}

#[tokio::test]
async fn calls_that_cannot_be_entered_wait_and_hold_up_no_charge() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    paying.assert_added_up().await;
    paying.sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON usage_days
         BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    paying.pay().await.unwrap();
    assert_eq!(paying.days().await[0].calls, 1, "what there is");
    let last = paying.pay().await.unwrap();
    assert!(paying.ledger.health().takes_charges());
    let listed = paying.ledger.usage(&paying.account_id, 0, i64::MAX).await;
    assert_eq!(listed.unwrap().len(), 3, "they are shown all the same");
    let found = paying.ledger.find_calls(&last.request_id).await.unwrap();
    assert!(found.iter().any(|call| call.id == last.id));
    let balance = paying.balance().await;
    let entries = paying
        .ledger
        .entries_page(&paying.account_id, None, 10)
        .await
        .unwrap();
    assert_eq!(
        (entries.len(), entries[0].balance_after.nanos()),
        (4, balance),
        "in the books too"
    );
    let page = CallsPage {
        account_id: Some(&paying.account_id),
        key_id: Some(&paying.key_id),
        limit: 10,
        ..CallsPage::default()
    };
    assert_eq!(paying.ledger.calls_page(&page).await.unwrap().len(), 3);
    let looked = paying
        .embedded()
        .reader
        .query_file(|database| books(database, 0));
    assert_eq!(
        looked.await.unwrap().violations,
        [],
        "nobody is frozen for it"
    );
    assert_eq!(paying.ledger.audit().await.unwrap().violations, []);
    let audit = audit_file(&paying.folder().path().join("ledger.db")).unwrap();
    assert_eq!((audit.charges, audit.violations), (3, Vec::new()));
    let paying = paying.restart().await;
    assert_eq!(paying.balance().await, balance);
    paying.sql("DROP TRIGGER refuse");
    assert_eq!(paying.days().await[0].calls, 3);
    paying.assert_added_up().await;
    paying.assert_sound().await;
    paying.restart().await.assert_added_up().await;
}

/// What an earlier process charged and did not enter counts from the start: its grants, its debt, its order.
#[tokio::test]
async fn what_is_not_entered_counts_when_the_file_is_opened() {
    let paying = with(3 * COST).await;
    paying.give(COST / 2, Some(paying.now() + 1_000)).await;
    paying.sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON usage_days
         BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    for _ in 0..3 {
        paying.pay().await.unwrap();
    }
    let mut dear = paying.hold(COST / 4, 2 * COST, 2 * COST).await.unwrap();
    dear.charge(tokens(2 * COST), Outcome::Answered)
        .await
        .unwrap();
    drop(dear);
    let owed = 5 * COST - (3 * COST + COST / 2);
    assert_eq!(paying.balance().await, -owed);
    let paying = paying.restart().await;
    assert_eq!(paying.balance().await, -owed);
    paying.sql("DROP TRIGGER refuse");
    paying.give(DOLLAR, None).await;
    assert_eq!(paying.balance().await, DOLLAR - owed);
    paying.assert_sound().await;
    paying.assert_added_up().await;
    assert_eq!(paying.restart().await.balance().await, DOLLAR - owed);
}

/// Takes the calls back out of where they were entered since `KEPT`, and writes them down in columns.
const IN_COLUMNS: &str = "
    DROP TABLE new_calls;
    CREATE TABLE new_calls AS
    SELECT calls.*, entry.seq AS seq,
        (SELECT id || ' ' || max(calls.balance_after, 0) || char(10) FROM credit_grants) AS grants_left,
        iif(calls.balance_after < 0, -calls.balance_after, NULL) AS debt
    FROM calls JOIN ledger_entries AS entry ON entry.ref = calls.id AND entry.kind = 'charge'
    WHERE calls.id > KEPT;
    DELETE FROM calls WHERE id IN (SELECT id FROM new_calls);
    DELETE FROM ledger_entries WHERE seq IN (SELECT seq FROM new_calls);
    REPLACE INTO usage_days SELECT * FROM kept_days;
    REPLACE INTO credit_grants SELECT * FROM kept_grants;
    UPDATE accounts SET debt = 0;
    PRAGMA user_version = 9;";

const KEPT: &str = "
    CREATE TABLE kept_days AS SELECT * FROM usage_days;
    CREATE TABLE kept_grants AS SELECT * FROM credit_grants;";

/// The version before this one wrote them in columns, and died before it entered them.
#[tokio::test]
async fn what_an_earlier_version_did_not_enter_is_entered() {
    let paying = with(3 * COST).await;
    paying.pay().await.unwrap();
    paying.assert_added_up().await;
    let kept: i64 = paying
        .sql("SELECT max(last_id) FROM call_blocks")
        .parse()
        .unwrap();
    paying.sql(KEPT);
    paying.pay().await.unwrap();
    let mut dear = paying.hold(COST, 2 * COST, 2 * COST).await.unwrap();
    let charged = dear.charge(tokens(2 * COST), Outcome::Answered).await;
    drop(dear);
    let balance = charged.unwrap().charged.unwrap().balance_after;
    assert_eq!(balance.nanos(), -COST);
    let expected = paying.days().await;
    as_rows(&paying);
    paying.sql(&IN_COLUMNS.replace("KEPT", &kept.to_string()));
    assert_ne!(paying.days().await, expected);
    let audit = audit_file(&paying.folder().path().join("ledger.db")).unwrap();
    assert_eq!((audit.charges, audit.violations), (3, Vec::new()));
    let paying = paying.restart().await;
    assert_eq!(paying.days().await, expected);
    assert_eq!(paying.balance().await, -COST);
    paying.assert_sound().await;
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
    for _ in 0..2 {
        let call = call.clone();
        let again = paying
            .embedded()
            .writer
            .run(move |database, _| Ok(database.insert_call(&call)?));
        again.await.unwrap();
        assert_eq!(paying.days().await[0].calls, 1, "and then it is entered");
    }
    let another = paying.embedded().writer.run(move |database, _| {
        let charge = Charge {
            left: Vec::new(),
            debt: None,
            before: NanoUsd::default(),
            after: NanoUsd::default(),
        };
        Ok(database.insert_charged(&call, call.charged.unwrap(), &charge)?)
    });
    assert!(another.await.is_err(), "of the same number");
    paying.until_charges_are_taken().await;
    paying.assert_sound().await;
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
