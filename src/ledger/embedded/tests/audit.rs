//! Everything an audit is there to notice, done to a database on purpose.

use super::*;

async fn busy() -> Paying {
    let paying = with(1_000_000).await;
    paying.give(500, Some(paying.now() + 5)).await;
    for _ in 0..3 {
        paying.pay().await.unwrap();
    }
    paying.advance(10);
    paying.assert_sound().await;
    paying
}

#[tokio::test]
async fn every_way_in_which_books_can_be_wrong_is_noticed() {
    for (sql, notice) in [
        (
            "UPDATE ledger_entries SET delta = delta - 1 WHERE seq = 3",
            "add up to",
        ),
        (
            "UPDATE ledger_entries SET balance_after = 7 WHERE seq = 4",
            "add up to",
        ),
        (
            "DELETE FROM ledger_entries WHERE seq = 4",
            "there is no entry for it",
        ),
        (
            "DELETE FROM calls WHERE id = (SELECT max(id) FROM calls)",
            "a call that is not there",
        ),
        ("UPDATE calls SET cost = cost + 1", "is not what call"),
        ("UPDATE calls SET prompt = prompt + 1", "is not what call"),
        (
            "UPDATE credit_grants SET remaining = remaining - 1 WHERE expires_at IS NULL",
            "the grants have",
        ),
        (
            "UPDATE credit_grants SET remaining = amount + 1",
            "impossible rest",
        ),
        (
            "UPDATE credit_grants SET amount = amount + 1",
            "is not what grant",
        ),
        ("UPDATE accounts SET debt = 5", "in memory are"),
    ] {
        let paying = busy().await;
        paying.sql(sql);
        let audit = paying.ledger.audit().await.unwrap();
        let told = audit
            .violations
            .iter()
            .any(|found| found.what.contains(notice));
        assert!(told, "{sql}: {:?}", audit.violations);
        assert!(
            audit
                .violations
                .iter()
                .all(|found| found.account_id == paying.account_id)
        );
        assert_eq!(paying.ledger.violations(), 1);
        let frozen = paying.hold(1, 1, 0).await.err();
        assert_eq!(frozen, Some(HoldRefused::Unavailable), "{sql}");
    }
}

/// The look every minute is at what is new, and a contradiction it found stays found.
#[tokio::test]
async fn the_regular_look_sees_what_is_new() {
    let paying = busy().await;
    let looked = paying.ledger.reconcile().await.unwrap();
    assert_eq!(
        (looked.entries, looked.accounts.len()),
        (0, 0),
        "all was seen before"
    );
    paying.pay().await.unwrap();
    paying.pay().await.unwrap();
    let looked = paying.ledger.reconcile().await.unwrap();
    assert_eq!((looked.entries, looked.charges), (2, 2));
    assert_eq!(looked.violations, []);
    paying.pay().await.unwrap();
    paying.days().await; // so that it is entered
    paying.sql("UPDATE ledger_entries SET delta = delta - 1 WHERE seq = (SELECT max(seq) FROM ledger_entries)");
    assert!(
        !paying
            .ledger
            .reconcile()
            .await
            .unwrap()
            .violations
            .is_empty()
    );
    assert!(
        paying
            .ledger
            .reconcile()
            .await
            .unwrap()
            .violations
            .is_empty()
    );
    assert_eq!(
        paying.ledger.violations(),
        1,
        "until someone has looked at everything"
    );
    paying.sql("UPDATE ledger_entries SET delta = delta + 1 WHERE seq = (SELECT max(seq) FROM ledger_entries)");
    paying.assert_sound().await;
    assert_eq!(paying.ledger.violations(), 0);
    assert!(paying.hold(1, 1, 0).await.is_ok());
}

/// A look through all calls must not look through all entries for each of them.
#[tokio::test]
async fn the_look_for_calls_without_an_entry_goes_through_the_books_once() {
    let paying = busy().await;
    let query = super::super::sqlite::audit::CALLS_WITHOUT_ENTRY;
    let connection = open_to_read(&paying.folder().path().join("ledger.db")).unwrap();
    let mut plan = connection
        .prepare(&format!("EXPLAIN QUERY PLAN {query}"))
        .unwrap();
    let steps = plan.query_map([], |row| row.get::<_, String>(3)).unwrap();
    let steps: Vec<String> = steps.map(Result::unwrap).collect();
    assert!(steps.iter().any(|step| step.contains("LIST SUBQUERY")));
    assert!(
        !steps.iter().any(|step| step.contains("CORRELATED")),
        "{steps:?}"
    );
}
