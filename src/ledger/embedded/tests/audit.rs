//! Every inconsistency that an audit must find, made in a database on purpose.

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
            "UPDATE ledger_entries SET delta_nano_usd = delta_nano_usd - 1 WHERE seq = 2",
            "add up to",
        ),
        (
            "UPDATE ledger_entries SET balance_after_nano_usd = 7 WHERE seq = 2",
            "add up to",
        ),
        ("DELETE FROM ledger_entries WHERE seq = 2", "add up to"),
        (
            "UPDATE ledger_entries SET kind = 'opening' WHERE seq = 2",
            "is not the account's first",
        ),
        (
            "UPDATE ledger_entries SET kind = 'expiry' WHERE seq = 2",
            "deducts nothing",
        ),
        ("DELETE FROM calls", "the grants have"),
        (
            "UPDATE credit_grants SET remaining_nano_usd = remaining_nano_usd - 1 WHERE expires_at IS NULL",
            "the grants have",
        ),
        (
            "UPDATE credit_grants SET remaining_nano_usd = amount_nano_usd + 1",
            "invalid remaining amount",
        ),
        (
            "UPDATE credit_grants SET amount_nano_usd = amount_nano_usd + 1",
            "differs from the amount of grant",
        ),
        ("UPDATE accounts SET debt_nano_usd = 5", "in memory are"),
    ] {
        let paying = busy().await;
        paying.sql(sql);
        assert_noticed(&paying, sql, notice).await;
    }
}

#[tokio::test]
async fn every_inconsistency_of_calls_is_found() {
    for (change, notice) in [
        (
            "SET cost_nano_usd = cost_nano_usd + 1",
            "differs from the cost",
        ),
        (
            "SET prompt_tokens = prompt_tokens + 1",
            "differs from the cost",
        ),
        ("SET input_pico_usd = 7", "differs from the cost"),
        ("SET detail = '{\"steps\": 7}'", "differs from the cost"),
        ("SET balance_after_nano_usd = 7", "add up to"),
        ("SET prompt_tokens = NULL", "cannot be read"),
        ("SET entry_seq = NULL, cost_nano_usd = NULL", "add up to"),
        ("SET account_id = 'acct_other'", "the grants have"),
    ] {
        let paying = busy().await;
        let second = "id = (SELECT id FROM calls ORDER BY id LIMIT 1 OFFSET 1)";
        paying.sql(&format!("UPDATE calls {change} WHERE {second}"));
        let audit = paying.ledger.audit().await.unwrap();
        let found = &audit.violations;
        assert!(
            found.iter().any(|found| found.what.contains(notice)),
            "{change}: {found:?}"
        );
    }
    let paying = busy().await;
    paying.sql("UPDATE calls SET output_pico_usd = 7");
    paying.assert_sound().await; // no call has output
}

/// A charge without an entry, or an entry without a charge, cannot be stored.
#[tokio::test]
async fn a_charge_and_its_entry_are_one() {
    let paying = busy().await;
    let file = rusqlite::Connection::open(paying.folder().path().join("ledger.db")).unwrap();
    for half in ["cost_nano_usd = NULL", "entry_seq = NULL"] {
        let refused = file.execute(&format!("UPDATE calls SET {half}"), []);
        assert!(refused.unwrap_err().to_string().contains("CHECK"), "{half}");
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
        "UPDATE ledger_entries SET delta_nano_usd = delta_nano_usd - 1 WHERE {last}"
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
        "UPDATE ledger_entries SET delta_nano_usd = delta_nano_usd + 1 WHERE {last}"
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
