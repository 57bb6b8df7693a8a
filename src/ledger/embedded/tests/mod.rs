//! Tests of the embedded ledger that do not apply to the shared one; those of both are in `ledger::tests`.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use futures_util::FutureExt as _;
use tempfile::TempDir;

use super::{
    Embedded, audit_file,
    sqlite::{lock::Lock, record::framed, redo_log::unposted_records},
};
use crate::ledger::{
    HoldRefused, Ledger, LedgerError, Outcome,
    tests::{COST, DOLLAR, Paying, TestStore, tokens},
};

mod audit;
mod closing;
mod days;
mod faults;
mod full_disk;
mod history;
mod keys;
mod kills;
mod misplaced;
mod pages;
mod prune;
mod redo_log;
mod rows;
mod spill;

async fn with(nanos: i64) -> Paying {
    Paying::on_with(TestStore::folder(), nanos).await
}

/// What is left of a dollar after so many charges.
fn spent(times: i64) -> i64 {
    DOLLAR - times * COST
}

impl Paying {
    fn folder(&self) -> &TempDir {
        let TestStore::Folder(folder) = &*self.store else {
            unreachable!("it was opened so")
        };
        folder
    }

    /// The ledger behind the common interface.
    fn embedded(&self) -> &Embedded {
        let Ledger::Embedded(ledger) = &*self.ledger else {
            unreachable!("it was opened so")
        };
        ledger
    }

    /// How many calls are in the redo log.
    fn calls_in_redo_log(&self) -> usize {
        let file = self.folder().path().join("ledger.db");
        let file = rusqlite::Connection::open(file).unwrap();
        framed(&unposted_records(&file).unwrap()).count()
    }

    /// Simulates a full disk at this many pages; `None` ends that.
    async fn limit_pages(&self, pages: Option<u32>) {
        let limited = self
            .embedded()
            .writer
            .run(move |database, _| Ok(database.limit_pages(pages)?));
        limited.await.unwrap();
    }
}

/// A hold waits for nothing.
#[tokio::test]
async fn a_hold_is_placed_at_once() {
    let paying = with(COST).await;
    let held = paying.hold(COST, COST, 0).now_or_never();
    assert!(held.expect("without waiting").is_ok());
}

/// If nothing else writes and nothing waits for the disk, a charge wakes no other thread.
#[tokio::test]
async fn a_charge_is_written_at_once_by_its_own_thread() {
    let paying = with(DOLLAR).await;
    let mut charges = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(3)).await;
        let mut held = paying.hold(COST, COST, 0).await.unwrap();
        let mut charge = pin!(held.charge(tokens(COST), Outcome::Answered));
        charges += 1;
        if let Some(charged) = charge.as_mut().now_or_never() {
            charged.unwrap();
            break;
        }
        charge.await.unwrap();
        assert!(charges < 100, "the writer's thread is always busy");
    }
    assert_eq!(paying.balance().await, DOLLAR - charges * COST);
    paying.assert_sound().await;
    paying.assert_added_up().await;
}
