//! Closing the file so that the next process can use it without checking all of it first.

use std::path::PathBuf;

use super::*;
use crate::base::{clock::Clock, durability::Durability};

struct File {
    _folder: TempDir,
    path: PathBuf,
}

impl File {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("ledger.db");
        Self {
            _folder: folder,
            path,
        }
    }

    fn open(&self) -> Embedded {
        Embedded::open_at(&self.path, Durability::Process, Clock::System).unwrap()
    }

    fn is_noted(&self) -> bool {
        let note = std::fs::read_to_string(self.path.with_extension("db.lock"));
        note.unwrap().starts_with("closed ")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_query_does_not_keep_the_file_open() {
    let file = File::new();
    let ledger = file.open();
    let endless =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let query = ledger.reader.query_file(move |connection| {
        connection.query_row(endless, [], |row| row.get::<_, i64>(0))
    });
    let timed_out = tokio::time::timeout(Duration::from_millis(100), query).await;
    assert!(timed_out.is_err());
    ledger.close().await;
    drop(ledger);
    assert!(file.is_noted());
}

/// The next process then checks the file before it uses it.
#[tokio::test]
async fn a_file_with_damage_is_not_noted_as_left() {
    let file = File::new();
    drop(file.open());
    assert!(file.is_noted());
    let ledger = file.open();
    assert!(!ledger.is_checked.load(Relaxed));
    ledger.usable.store(false, Relaxed);
    drop(ledger);
    assert!(!file.is_noted());
    assert!(file.open().is_checked.load(Relaxed));
}
