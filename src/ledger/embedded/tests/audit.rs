//! Everything an audit is there to notice, done to a database on purpose.

use super::*;
use crate::{
    base::money::{NanoUsd, TokenPrice},
    ledger::{
        Call, Charged,
        embedded::sqlite::record::{Lists, Record, framed},
    },
};

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

/// What is done to the calls that are stored.
type Change = fn(&mut Vec<(i64, Call)>);

/// Changes the account's calls in the only row there is.
fn change(paying: &Paying, change: Change) {
    let file = paying.folder().path().join("ledger.db");
    let file = rusqlite::Connection::open(file).unwrap();
    let bytes: Vec<u8> = file
        .query_row("SELECT records FROM call_blocks", [], |row| row.get(0))
        .unwrap();
    let stored = framed(&bytes).map(Result::unwrap);
    let mut calls = stored
        .map(|framed| (framed.seq, framed.read().unwrap().call().unwrap()))
        .collect();
    change(&mut calls);
    let mut bytes = Vec::new();
    for (seq, call) in &calls {
        let lists = Lists::of(call);
        Record::of(call, call.charged, None, &lists)
            .write(&mut bytes, *seq)
            .unwrap();
    }
    file.execute("UPDATE call_blocks SET records = ?1", [bytes])
        .unwrap();
}

fn charged(calls: &mut [(i64, Call)], index: usize) -> &mut Charged {
    calls[index].1.charged.as_mut().unwrap()
}

async fn assert_noticed(paying: &Paying, done: &str, notice: &str) {
    let audit = paying.ledger.audit().await.unwrap();
    let found = &audit.violations;
    let told = found.iter().any(|found| found.what.contains(notice));
    assert!(told, "{done}: {found:?}");
    let mut whose = found.iter().map(|found| &found.account_id);
    assert!(
        whose.all(|whose| *whose == paying.account_id),
        "{done}: {found:?}"
    );
    assert_eq!(paying.ledger.violations(), 1);
    let frozen = paying.hold(1, 1, 0).await.err();
    assert_eq!(frozen, Some(HoldRefused::Unavailable), "{done}");
}

#[tokio::test]
async fn every_way_in_which_books_can_be_wrong_is_noticed() {
    for (sql, notice) in [
        (
            "UPDATE ledger_entries SET delta = delta - 1 WHERE seq = 2",
            "add up to",
        ),
        (
            "UPDATE ledger_entries SET balance_after = 7 WHERE seq = 2",
            "add up to",
        ),
        ("DELETE FROM ledger_entries WHERE seq = 2", "add up to"),
        (
            "UPDATE ledger_entries SET kind = 'charge' WHERE seq = 2",
            "a call that is not there",
        ),
        (
            "UPDATE ledger_entries SET kind = 'expiry' WHERE seq = 2",
            "took nothing",
        ),
        ("DELETE FROM call_blocks", "the grants have"),
        ("UPDATE call_blocks SET calls = 2", "says that they are 2"),
        (
            "UPDATE call_blocks SET records = CAST(substr(records, 1, 400) AS BLOB)",
            "cannot be read",
        ),
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
        assert_noticed(&paying, sql, notice).await;
    }
}

#[tokio::test]
async fn every_way_in_which_calls_can_be_wrong_is_noticed() {
    let changes: [(&str, Change, &str); 8] = [
        ("nothing", |_| {}, ""),
        (
            "cost",
            |calls| charged(calls, 1).cost = NanoUsd::new(COST + 1),
            "is not what call",
        ),
        (
            "tokens",
            |calls| charged(calls, 1).usage.prompt += 1,
            "is not what call",
        ),
        (
            "prices",
            |calls| Arc::make_mut(&mut calls[1].1.prices).rates.output = TokenPrice::from_picos(7),
            "",
        ),
        (
            "balance",
            |calls| charged(calls, 1).balance_after = NanoUsd::new(7),
            "add up to",
        ),
        (
            "one that is gone",
            |calls| drop(calls.remove(1)),
            "says that they are 3",
        ),
        (
            "one that was not charged",
            |calls| calls[1].1.charged = None,
            "add up to",
        ),
        (
            "one that is there twice",
            |calls| calls[2].1.id = calls[1].1.id,
            "is there twice",
        ),
    ];
    for (what, done, notice) in changes {
        let paying = busy().await;
        change(&paying, done);
        if notice.is_empty() {
            paying.assert_sound().await;
        } else {
            assert_noticed(&paying, what, notice).await;
        }
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
    paying.give(7, None).await;
    let last = "seq = (SELECT max(seq) FROM ledger_entries)";
    paying.sql(&format!(
        "UPDATE ledger_entries SET delta = delta - 1 WHERE {last}"
    ));
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
    paying.sql(&format!(
        "UPDATE ledger_entries SET delta = delta + 1 WHERE {last}"
    ));
    paying.assert_sound().await;
    assert_eq!(paying.ledger.violations(), 0);
    assert!(paying.hold(1, 1, 0).await.is_ok());
}

/// What no version of ours has seen has no books.
#[tokio::test]
async fn a_file_of_something_else_does_not_add_up() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("other.db");
    std::fs::write(&file, "").unwrap();
    let told = audit_file(&file).unwrap_err();
    assert!(told.contains("cannot be audited"), "{told}");
}
