//! Stored responses in an SQLite file, which one thread owns.

use std::path::Path;

mod responses;
mod worker;

use self::worker::Worker;
use super::{Cause, Record, Settings, StorageError, health};
use crate::{
    base::{clock::Clock, durability::Durability},
    db::sqlite::{File, FileKind},
};

/// Commits are not flushed to the disk one by one, so that the ledger does not wait for the disk because of them; a power
/// cut may lose the last responses. The file does not shrink; its maximum is about 260 MB.
pub(crate) const KIND: FileKind = FileKind {
    schema: include_str!("schema.sql"),
    durability: Durability::Process,
};

pub struct SqliteStore {
    pub(super) worker: Worker,
    clock: Clock,
    pub(super) settings: Settings,
}

impl SqliteStore {
    pub(super) fn open(path: &Path, settings: Settings, clock: Clock) -> Self {
        let upkeep = {
            let clock = clock.clone();
            move |connection: &mut rusqlite::Connection| {
                responses::sweep(connection, clock.now_ms() - settings.retention_ms)
            }
        };
        Self {
            worker: Worker::start(File::new(path, KIND), settings, upkeep),
            clock,
            settings,
        }
    }

    pub(crate) async fn store(&self, record: Record) -> Result<(), StorageError> {
        let (clock, settings) = (self.clock.clone(), self.settings);
        self.worker
            .run(move |connection| responses::store(connection, &record, &settings, clock.now_ms()))
            .await
    }

    pub(crate) async fn find(
        &self,
        account_id: &str,
        id: &str,
    ) -> Result<Option<Record>, StorageError> {
        let (account_id, id) = (account_id.to_owned(), id.to_owned());
        let (clock, retention_ms) = (self.clock.clone(), self.settings.retention_ms);
        self.worker
            .run(move |connection| {
                let expired_ms = clock.now_ms() - retention_ms;
                responses::find(connection, &account_id, &id, expired_ms)
            })
            .await
    }

    pub(crate) async fn delete_all_of(&self, account_id: &str) -> Result<(), StorageError> {
        let account_id = account_id.to_owned();
        self.worker
            .run(move |connection| responses::delete_all_of(connection, &account_id))
            .await
    }

    pub(crate) async fn delete(&self, account_id: &str, id: &str) -> Result<bool, StorageError> {
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
