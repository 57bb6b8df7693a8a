//! The redo log: calls that are posted later than they are charged count at once, and none is lost.

use super::*;
use crate::{
    base::money::NanoUsd,
    ledger::{CallsPage, credit::Charge, embedded::sqlite::audit::audit_entries, tests::until},
};

#[tokio::test]
async fn calls_that_cannot_be_posted_delay_no_charge() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    paying.assert_added_up().await;
    paying.sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON usage_days
         BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    paying.pay().await.unwrap();
    assert_eq!(paying.days().await[0].calls, 1, "those that were posted");
    let last = paying.pay().await.unwrap();
    assert!(paying.ledger.health().takes_charges());
    let listed = paying.ledger.usage(&paying.account_id, 0, i64::MAX).await;
    assert_eq!(listed.unwrap().len(), 3, "they are listed all the same");
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
        "among the entries too"
    );
    let page = CallsPage {
        account_id: Some(&paying.account_id),
        key_id: Some(&paying.key_id),
        limit: 10,
        ..CallsPage::default()
    };
    assert_eq!(
        paying.ledger.calls_page(&page).await.unwrap().calls.len(),
        3
    );
    let audit = paying
        .embedded()
        .reader
        .query_file(|database| audit_entries(database, 0));
    assert_eq!(
        audit.await.unwrap().violations,
        [],
        "no account is frozen for it"
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

/// Charges that an earlier process did not post count from the start: grants, debt and order.
#[tokio::test]
async fn the_redo_log_counts_when_the_file_is_opened() {
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

#[tokio::test]
async fn sums_of_a_rolled_back_call_are_dropped() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    let call = paying
        .hold(COST, COST, 0)
        .await
        .unwrap()
        .release(Outcome::Lost, None);
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

#[tokio::test]
async fn a_call_stored_twice_counts_once() {
    let paying = with(DOLLAR).await;
    let call = paying.pay().await.unwrap();
    for _ in 0..2 {
        let call = call.clone();
        let again = paying
            .embedded()
            .writer
            .run(move |database, _| Ok(database.insert_call(&call)?));
        again.await.unwrap();
        assert_eq!(paying.days().await[0].calls, 1, "and then it is posted");
    }
    let another = paying.embedded().writer.run(move |database, _| {
        let charge = Charge {
            left: Vec::new(),
            debt: None,
            before: NanoUsd::default(),
            after: NanoUsd::default(),
            held_at: 0,
            budgets: Vec::new(),
        };
        Ok(database.insert_charged(&call, call.charged.unwrap(), &charge)?)
    });
    assert!(another.await.is_err(), "of the same number");
    paying.until_charges_are_taken().await;
    paying.assert_sound().await;
}

#[tokio::test]
async fn sums_are_posted_without_a_query() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    let written = "SELECT coalesce(sum(calls), 0) FROM usage_days";
    until("they are written", async || paying.sql(written) == "1").await;
    // Within a second of the last time.
    paying.pay().await.unwrap();
    paying.pay().await.unwrap();
    let store = paying.store.clone();
    drop(paying);
    assert_eq!(store.sql(written), "3", "when the ledger is closed");
}
