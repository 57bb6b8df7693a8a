//! What only a ledger in a file can do and suffer; what every ledger promises is in `ledger::tests`.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use futures_util::FutureExt as _;
use tempfile::TempDir;

use super::{
    Embedded, audit_file,
    sqlite::{lock::Lock, new_calls::not_entered, record::framed},
};
use crate::ledger::{
    HoldRefused, Ledger, LedgerError, Outcome,
    tests::{COST, DOLLAR, Paying, TestStore, tokens},
};

mod audit;
mod blocks;
mod days;
mod faults;
mod misplaced;
mod new_pages;
mod pages;
mod spill;

async fn with(nanos: i64) -> Paying {
    Paying::on_with(TestStore::folder(), nanos).await
}

/// What is left of a dollar.
fn spent(times: i64) -> i64 {
    DOLLAR - times * COST
}

impl Paying {
    fn folder(&self) -> &TempDir {
        let TestStore::Folder(folder) = &*self.place else {
            unreachable!("it was opened so")
        };
        folder
    }

    /// Behind the door.
    fn embedded(&self) -> &Embedded {
        let Ledger::Embedded(ledger) = &*self.ledger else {
            unreachable!("it was opened so")
        };
        ledger
    }

    /// How many are not entered yet.
    fn calls_that_wait(&self) -> usize {
        let file = self.folder().path().join("ledger.db");
        let file = rusqlite::Connection::open(file).unwrap();
        framed(&not_entered(&file).unwrap()).count()
    }

    /// Makes the disk look full at so many pages, or not any more.
    async fn limit_pages(&self, pages: Option<u32>) {
        let limited = self
            .embedded()
            .writer
            .run(move |database, _| Ok(database.limit_pages(pages)?));
        limited.await.unwrap();
    }
}

/// There is nothing to wait for.
#[tokio::test]
async fn credit_is_set_aside_at_once() {
    let paying = with(COST).await;
    let held = paying.hold(COST, COST, 0).now_or_never();
    assert!(held.expect("an answer at once").is_ok());
}

/// Where nobody else writes, and nothing waits for the disk, nobody is woken for a charge.
#[tokio::test]
async fn a_charge_is_written_at_once_by_whoever_asks_for_it() {
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
        assert!(charges < 100, "the thread that writes is always at work");
    }
    assert_eq!(paying.balance().await, DOLLAR - charges * COST);
    paying.assert_sound().await;
    paying.assert_added_up().await;
}
