//! Stored responses in a file, owned by a thread of its own.

use std::path::Path;

mod responses;
mod worker;

use self::worker::Worker;
use super::{Cause, Record, Settings, StorageError, health};
use crate::{
    base::{clock::Clock, durability::Durability},
    db::sqlite::{File, FileKind},
};

/// A flush only now and then: a power cut may take the last responses with it, and the ledger does
/// not wait for the disk behind them. The file stays at the size of the most that was ever kept, at
/// most some 260 MB.
pub const KIND: FileKind = FileKind {
    schema: include_str!("schema.sql"),
    durability: Durability::Process,
};

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
            worker: Worker::start(File::new(path, KIND), settings, upkeep),
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
