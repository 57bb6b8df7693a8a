//! Stored responses as a whole: real files, real threads, faults.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use super::{Cause, Clock, Conversations, Kept, Record, SETTINGS, Settings, StorageError};

mod contract;
mod crowd;
mod faults;
mod files;
mod model;

/// Storage in a folder of its own, and a clock that moves when it is told to.
struct Given {
    folder: TempDir,
    now_ms: Arc<AtomicI64>,
    settings: Settings,
    conversations: Arc<Conversations>,
}

impl Given {
    fn sqlite() -> Self {
        Self::with(SETTINGS)
    }

    fn with(settings: Settings) -> Self {
        let folder = TempDir::new().unwrap();
        let now_ms = Arc::new(AtomicI64::new(1_800_000_000_000));
        let conversations = open(&folder, settings, &now_ms);
        Self {
            folder,
            now_ms,
            settings,
            conversations,
        }
    }

    fn restart(self) -> Self {
        drop(self.conversations);
        let conversations = open(&self.folder, self.settings, &self.now_ms);
        Self {
            conversations,
            ..self
        }
    }

    fn advance(&self, ms: i64) {
        self.now_ms.fetch_add(ms, Relaxed);
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("store/t.responses.db")
    }

    /// A connection beside the one under test.
    fn reader(&self) -> Connection {
        Connection::open_with_flags(self.file(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
    }

    async fn store(&self, account_id: &str, id: &str) {
        let kept = self.conversations.store(record(account_id, id)).await;
        assert_eq!(kept.unwrap(), Kept::Stored);
    }

    async fn has(&self, account_id: &str, id: &str) -> bool {
        let found = self.conversations.find(account_id, id).await.unwrap();
        if let Some(found) = &found {
            assert_eq!(*found, record(account_id, id));
        }
        found.is_some()
    }
}

fn open(folder: &TempDir, settings: Settings, now_ms: &Arc<AtomicI64>) -> Arc<Conversations> {
    let path = folder.path().join("store/t.responses.db");
    Arc::new(Conversations::open(
        &path,
        settings,
        Clock::Manual(now_ms.clone()),
    ))
}

fn record(account_id: &str, id: &str) -> Record {
    Record {
        id: id.into(),
        account_id: account_id.into(),
        response: format!("{{\"id\":\"{id}\"}}"),
        input: "[]".into(),
    }
}
