//! Tests of the storage on real SQLite files and PostgreSQL servers, with faults.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use self::reader::Reader;
use super::{
    Cause, Clock, Conversations, PostgresStore, Record, SETTINGS, Settings, SqliteStore,
    StorageError, StoreOutcome,
};
use crate::db::{postgres::Address, testing::postgres_server::PostgresServer};

mod concurrency;
mod contract;
mod model;
mod postgres;
mod reader;
mod sqlite;

/// A long deadline, because test machines are busy; tests of deadlines set their own.
const LONG_DEADLINE: Settings = Settings {
    deadline: Duration::from_mins(1),
    ..SETTINGS
};

/// Empty storage with a manual clock.
struct Given {
    place: Place,
    now_ms: Arc<AtomicI64>,
    settings: Settings,
    conversations: Arc<Conversations>,
}

enum Place {
    Folder(TempDir),
    Database(Address),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Sqlite,
    Postgres,
}

impl Given {
    fn sqlite() -> Self {
        Self::with(Kind::Sqlite, LONG_DEADLINE)
    }

    /// Must be called within a Tokio runtime.
    fn postgres() -> Self {
        Self::with(Kind::Postgres, LONG_DEADLINE)
    }

    fn with(kind: Kind, settings: Settings) -> Self {
        let place = match kind {
            Kind::Sqlite => Place::Folder(TempDir::new().unwrap()),
            Kind::Postgres => Place::Database(postgres::new_database(PostgresServer::shared())),
        };
        Self::at(place, settings)
    }

    fn at(place: Place, settings: Settings) -> Self {
        let now_ms = Arc::new(AtomicI64::new(1_800_000_000_000));
        let conversations = place.open(settings, &now_ms);
        Self {
            place,
            now_ms,
            settings,
            conversations,
        }
    }

    fn restart(self) -> Self {
        drop(self.conversations);
        let conversations = self.place.open(self.settings, &self.now_ms);
        Self {
            conversations,
            ..self
        }
    }

    fn advance(&self, ms: i64) {
        self.now_ms.fetch_add(ms, Relaxed);
    }

    /// A separate connection that reads the records.
    async fn reader(&self) -> Reader {
        match &self.place {
            Place::Folder(folder) => Reader::file(&file_in(folder)),
            Place::Database(address) => Reader::database(address).await,
        }
    }

    async fn store(&self, account_id: &str, id: &str) {
        let kept = self.conversations.store(record(account_id, id)).await;
        assert_eq!(kept.unwrap(), StoreOutcome::Stored);
    }

    async fn has(&self, account_id: &str, id: &str) -> bool {
        let found = self.conversations.find(account_id, id).await.unwrap();
        if let Some(found) = &found {
            assert_eq!(*found, record(account_id, id));
        }
        found.is_some()
    }
}

impl Place {
    fn open(&self, settings: Settings, now_ms: &Arc<AtomicI64>) -> Arc<Conversations> {
        let clock = Clock::Manual(now_ms.clone());
        Arc::new(match self {
            Self::Folder(folder) => {
                Conversations::File(SqliteStore::open(&file_in(folder), settings, clock))
            }
            Self::Database(address) => {
                Conversations::Shared(PostgresStore::open(address.clone(), settings, clock))
            }
        })
    }
}

fn file_in(folder: &TempDir) -> PathBuf {
    folder.path().join("store/t.responses.db")
}

fn record(account_id: &str, id: &str) -> Record {
    Record {
        id: id.into(),
        account_id: account_id.into(),
        response: format!("{{\"id\":\"{id}\"}}"),
        input: "[]".into(),
        events: None,
    }
}
