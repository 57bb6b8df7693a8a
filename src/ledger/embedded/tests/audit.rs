//! Every inconsistency that an audit must find, made in a database on purpose.

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

/// A change of the stored calls.
type Change = fn(&mut Vec<(i64, Call)>);

/// Changes the account's calls in the only block.
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
    let is_reported = found.iter().any(|found| found.what.contains(notice));
    assert!(is_reported, "{done}: {found:?}");
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
async fn every_inconsistency_of_entries_is_found() {
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
            "a call that does not exist",
        ),
        (
            "UPDATE ledger_entries SET kind = 'expiry' WHERE seq = 2",
            "deducts nothing",
        ),
        ("DELETE FROM call_blocks", "the grants have"),
        ("UPDATE call_blocks SET calls = 2", "its count is 2"),
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
            "invalid remaining amount",
        ),
        (
            "UPDATE credit_grants SET amount = amount + 1",
            "differs from the amount of grant",
        ),
        ("UPDATE accounts SET debt = 5", "in memory are"),
    ] {
        let paying = busy().await;
        paying.sql(sql);
        assert_noticed(&paying, sql, notice).await;
    }
}

#[tokio::test]
async fn every_inconsistency_of_calls_is_found() {
    let changes: [(&str, Change, &str); 8] = [
        ("nothing", |_| {}, ""),
        (
            "cost",
            |calls| charged(calls, 1).cost = NanoUsd::new(COST + 1),
            "differs from the cost",
        ),
        (
            "tokens",
            |calls| charged(calls, 1).usage.prompt += 1,
            "differs from the cost",
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
            "its count is 3",
        ),
        (
            "one that was not charged",
            |calls| calls[1].1.charged = None,
            "add up to",
        ),
        (
            "one that is there twice",
            |calls| calls[2].1.id = calls[1].1.id,
            "is stored twice",
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

/// The periodic audit reads new entries only, and an inconsistency it has found keeps the account frozen.
#[tokio::test]
async fn the_periodic_audit_reads_new_entries() {
    let paying = busy().await;
    let audit = paying.ledger.reconcile().await.unwrap();
    assert_eq!(
        (audit.entries, audit.accounts.len()),
        (0, 0),
        "all were audited before"
    );
    paying.pay().await.unwrap();
    paying.pay().await.unwrap();
    let audit = paying.ledger.reconcile().await.unwrap();
    assert_eq!((audit.entries, audit.charges), (2, 2));
    assert_eq!(audit.violations, []);
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
    assert_eq!(paying.ledger.violations(), 1, "until a full audit");
    paying.sql(&format!(
        "UPDATE ledger_entries SET delta = delta + 1 WHERE {last}"
    ));
    paying.assert_sound().await;
    assert_eq!(paying.ledger.violations(), 0);
    assert!(paying.hold(1, 1, 0).await.is_ok());
}

/// A file without a ledger's tables cannot be audited.
#[tokio::test]
async fn a_file_of_another_kind_cannot_be_audited() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("other.db");
    std::fs::write(&file, "").unwrap();
    let error = audit_file(&file).unwrap_err();
    assert!(error.contains("cannot be audited"), "{error}");
}
