//! What only a ledger in a file can do and suffer; what every ledger promises is in `ledger::tests`.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use futures_util::FutureExt as _;
use tempfile::TempDir;

use super::{
    Embedded, audit_file,
    sqlite::{lock::Lock, open_to_read},
};
use crate::ledger::{
    HoldRefused, Ledger, LedgerError, Outcome,
    tests::{COST, DOLLAR, Paying, Place, tokens},
};

mod audit;
mod days;
mod faults;
mod pages;

async fn with(nanos: i64) -> Paying {
    Paying::on_with(Place::folder(), nanos).await
}

impl Paying {
    fn folder(&self) -> &TempDir {
        let Place::Folder(folder) = &*self.place else {
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
