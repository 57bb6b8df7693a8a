//! Stored responses in a file, owned by a thread of its own.

use std::path::Path;

mod open;
mod responses;
mod storage;
mod worker;

pub use self::open::probe;
use self::{storage::Storage, worker::Worker};
use super::{Cause, Record, Settings, StorageError, health};
use crate::ledger::clock::Clock;

pub struct InFile {
    pub(super) worker: Worker,
    clock: Clock,
    pub(super) settings: Settings,
}

impl InFile {
    pub(super) fn open(path: &Path, settings: Settings, clock: Clock) -> Self {
        let upkeep = {
            let clock = clock.clone();
            move |connection: &mut rusqlite::Connection| {
                responses::sweep(connection, clock.now_ms() - settings.retention_ms)
            }
        };
        Self {
            worker: Worker::start(Storage::new(path), settings, upkeep),
            clock,
            settings,
        }
    }

    pub async fn store(&self, record: Record) -> Result<(), StorageError> {
        let (clock, settings) = (self.clock.clone(), self.settings);
        self.worker
            .run(move |connection| responses::store(connection, &record, &settings, clock.now_ms()))
            .await
    }

    pub async fn find(&self, account_id: &str, id: &str) -> Result<Option<Record>, StorageError> {
        let (account_id, id) = (account_id.to_owned(), id.to_owned());
        let (clock, retention_ms) = (self.clock.clone(), self.settings.retention_ms);
        self.worker
            .run(move |connection| {
                let expired_ms = clock.now_ms() - retention_ms;
                responses::find(connection, &account_id, &id, expired_ms)
            })
            .await
    }

    pub async fn delete(&self, account_id: &str, id: &str) -> Result<bool, StorageError> {
        let (account_id, id) = (account_id.to_owned(), id.to_owned());
        let (clock, retention_ms) = (self.clock.clone(), self.settings.retention_ms);
        self.worker
            .run(move |connection| {
                let expired_ms = clock.now_ms() - retention_ms;
                responses::delete(connection, &account_id, &id, expired_ms)
            })
            .await
    }
}
