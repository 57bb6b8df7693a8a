//! Files that are moved, replaced, linked or deleted while a ledger has them open.

use std::{fs, path::PathBuf, time::Instant};

use super::*;
use crate::ledger::{Misplaced, OpenError, probe};

impl Paying {
    fn file(&self, name: &str) -> PathBuf {
        self.folder().path().join(name)
    }

    async fn until_misplaced(&self, expected: Misplaced) {
        let started = Instant::now();
        while self.ledger.health().misplaced() != Some(expected) {
            let found = self.ledger.health().misplaced();
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "{found:?} is not {expected:?}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn assert_refuses(&self) {
        assert!(!self.ledger.health().takes_charges());
        let refused = self.hold(COST, COST, 0).await.err();
        assert_eq!(refused, Some(HoldRefused::Unavailable));
    }
}

/// A charge written while the file is elsewhere would not be found again: it waits, and no call is started.
#[tokio::test]
async fn a_database_that_is_moved_takes_no_charge_until_it_is_back() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    let mut held = paying.hold(COST, COST, 0).await.unwrap();
    let (path, away) = (paying.file("ledger.db"), paying.file("away.db"));
    fs::rename(&path, &away).unwrap();
    paying.until_misplaced(Misplaced::Moved).await;
    paying.assert_refuses().await;
    let charged = held.charge(tokens(COST), Outcome::Answered).await;
    assert!(matches!(charged, Err(LedgerError::NotCommitted)));
    assert!(!path.exists(), "no new file was created");
    fs::rename(&away, &path).unwrap();
    paying.until_charges_are_taken().await;
    assert_eq!(paying.ledger.health().misplaced(), None);
    held.charge(tokens(COST), Outcome::Answered).await.unwrap();
    drop(held);
    paying.assert_sound().await;
    assert_eq!(paying.restart().await.balance().await, spent(2));
}

/// A file in its place is neither written nor read, so that its contents freeze no account.
#[tokio::test]
async fn a_database_that_is_replaced_takes_no_charge_until_it_is_back() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    let (path, away) = (paying.file("ledger.db"), paying.file("away.db"));
    let another = paying.file("another.db");
    let database = rusqlite::Connection::open(&another).unwrap();
    database.execute_batch("CREATE TABLE another (id)").unwrap();
    drop(database);
    fs::rename(&path, &away).unwrap();
    fs::rename(&another, &path).unwrap();
    let audited = paying.ledger.audit().await.unwrap_err();
    assert!(audited.to_string().contains("replaced"), "{audited}");
    paying.until_misplaced(Misplaced::Replaced).await;
    paying.assert_refuses().await;
    fs::rename(&away, &path).unwrap();
    paying.until_charges_are_taken().await;
    paying.pay().await.unwrap();
    paying.assert_sound().await;
    assert_eq!(paying.restart().await.balance().await, spent(2));
}

/// By its other name a second process could open it past the lock.
#[tokio::test]
async fn a_database_with_a_second_name_takes_no_charge_until_that_is_gone() {
    let paying = with(DOLLAR).await;
    let (path, link) = (paying.file("ledger.db"), paying.file("link.db"));
    fs::hard_link(&path, &link).unwrap();
    paying.until_misplaced(Misplaced::Linked).await;
    paying.assert_refuses().await;
    fs::remove_file(&link).unwrap();
    paying.until_charges_are_taken().await;
    paying.pay().await.unwrap();
    assert_eq!(paying.restart().await.balance().await, spent(1));
}

/// SQLite still has the write-ahead log open, and copies it into the database when that is closed.
#[tokio::test]
async fn a_deleted_log_stops_new_calls_and_a_restart_has_all_that_was_committed() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    fs::remove_file(paying.file("ledger.db-wal")).unwrap();
    paying.until_misplaced(Misplaced::Companion).await;
    paying.assert_refuses().await;
    let paying = paying.restart().await;
    assert_eq!(paying.balance().await, spent(1));
    paying.pay().await.unwrap();
    paying.assert_sound().await;
}

#[tokio::test]
async fn a_database_with_a_second_name_is_not_opened() {
    let paying = with(DOLLAR).await;
    let (path, link) = (paying.file("ledger.db"), paying.file("link.db"));
    drop(paying.ledger);
    fs::hard_link(&path, &link).unwrap();
    let refused = Lock::take(&link).err();
    assert!(
        matches!(refused, Some(OpenError::Linked { .. })),
        "{refused:?}"
    );
    assert!(probe(&path).unwrap_err().contains("hard link"));
}
