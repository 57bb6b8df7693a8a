//! Faults: locks, a disk that hangs, a full queue, panics.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use super::*;
use crate::{conversations::path_beside, db::sqlite::FileError};

/// Blocks the worker's thread until it is dropped.
struct Hanging(#[expect(dead_code, reason = "its drop ends the blocking step")] mpsc::Sender<()>);

async fn hang(given: &Given) -> Hanging {
    let (release, released) = mpsc::channel();
    let (begin, has_begun) = tokio::sync::oneshot::channel();
    let conversations = given.conversations.clone();
    tokio::spawn(async move {
        let work = move |_: &mut Connection| {
            let _ = begin.send(());
            let _: Result<(), _> = released.recv();
            Ok(())
        };
        if let Conversations::File(file) = &*conversations {
            let _ = file.worker.run(work).await;
        }
    });
    has_begun.await.unwrap();
    Hanging(release)
}

async fn until_healthy(given: &Given) {
    let started = Instant::now();
    while given.sqlite_store().worker.is_failing() {
        assert!(started.elapsed() < Duration::from_secs(5), "still failing");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_locked_file_is_unavailable_until_it_is_unlocked() {
    let given = Given::sqlite();
    given.store("a", "before").await;
    let other_process = Connection::open(given.file()).unwrap();
    other_process.execute_batch("BEGIN EXCLUSIVE").unwrap();
    for _ in 0..3 {
        let started = Instant::now();
        let refused = given.conversations.store(record("a", "during")).await;
        let unavailable = matches!(
            refused,
            Err(StorageError::Unavailable(Cause::File(
                FileError::Database { .. }
            )))
        );
        assert!(unavailable, "{refused:?}");
        assert!(started.elapsed() < SETTINGS.deadline);
        assert!(given.sqlite_store().worker.is_failing());
    }
    assert!(given.has("a", "before").await, "a lock does not stop reads");
    other_process.execute_batch("ROLLBACK").unwrap();
    given.store("a", "after").await;
    assert!(given.has("a", "before").await && given.has("a", "after").await);
    assert!(!given.has("a", "during").await);
    until_healthy(&given).await;
}

/// A lock on a file without a write-ahead log blocks readers as well.
#[tokio::test]
async fn a_file_locked_before_it_is_opened_is_opened_later() {
    let folder = TempDir::new().unwrap();
    let database = folder.path().join("t.db");
    let other_process = Connection::open(path_beside(&database)).unwrap();
    other_process.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let conversations = Conversations::beside(&database);
    let started = Instant::now();
    assert!(conversations.find("a", "resp_1").await.is_err());
    assert!(started.elapsed() < SETTINGS.deadline);
    other_process.execute_batch("ROLLBACK").unwrap();
    let kept = conversations.store(record("a", "resp_1")).await;
    assert_eq!(kept.unwrap(), StoreOutcome::Stored);
    assert!(conversations.find("a", "resp_1").await.unwrap().is_some());
}

/// The page limit belongs to the connection, so storing succeeds again only on a new connection.
#[tokio::test]
async fn a_connection_that_failed_is_not_used_again() {
    let given = Given::sqlite();
    given.store("a", "before").await;
    let fill = |connection: &mut Connection| {
        connection.query_row("PRAGMA max_page_count = 1", [], |row| row.get::<_, i64>(0))
    };
    given.sqlite_store().worker.run(fill).await.unwrap();
    let large = Record {
        input: "x".repeat(200 << 10),
        ..record("a", "large")
    };
    let refused = given.conversations.store(large.clone()).await;
    assert!(refused.unwrap_err().to_string().ends_with("is full"));
    assert_eq!(
        given.conversations.store(large).await.unwrap(),
        StoreOutcome::Stored
    );
    assert!(given.has("a", "before").await);
    until_healthy(&given).await;
}

#[tokio::test]
async fn an_operation_that_timed_out_is_executed_later() {
    let given = Given::with(
        Kind::Sqlite,
        Settings {
            deadline: Duration::from_millis(500),
            ..SETTINGS
        },
    );
    given.store("a", "before").await;
    let hanging = hang(&given).await;
    let started = Instant::now();
    let stored = given.conversations.store(record("a", "resp_1")).await;
    assert!(matches!(stored, Err(StorageError::TimedOut)), "{stored:?}");
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(given.sqlite_store().worker.is_failing());
    drop(hanging);
    until_healthy(&given).await;
    assert!(given.has("a", "resp_1").await);
}

#[tokio::test]
async fn a_full_queue_refuses_at_once() {
    let given = Given::sqlite();
    let hanging = hang(&given).await;
    let waiting = (0..SETTINGS.max_waiting).map(|number| {
        let conversations = given.conversations.clone();
        let record = record("a", &format!("resp_{number}"));
        tokio::spawn(async move { conversations.store(record).await })
    });
    let waiting: Vec<_> = waiting.collect();
    tokio::time::sleep(Duration::from_millis(200)).await; // until all of them are queued
    let started = Instant::now();
    let refused = given.conversations.find("a", "resp_1").await;
    let full = matches!(refused, Err(StorageError::Unavailable(Cause::QueueFull)));
    assert!(full, "{refused:?}");
    assert!(started.elapsed() < SETTINGS.deadline / 10);
    drop(hanging);
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().unwrap(), StoreOutcome::Stored);
    }
    until_healthy(&given).await;
}

#[tokio::test]
async fn a_panic_fails_its_own_operation_only() {
    let given = Given::sqlite();
    given.store("a", "resp_1").await;
    let work = |_: &mut Connection| -> rusqlite::Result<()> { panic!("on purpose") };
    let panicked = given.sqlite_store().worker.run(work).await;
    let stopped = matches!(panicked, Err(StorageError::Unavailable(Cause::Stopped)));
    assert!(stopped, "{panicked:?}");
    assert!(given.has("a", "resp_1").await);
}

/// A disk that hangs must not keep the gateway from stopping.
#[tokio::test]
async fn dropping_waits_no_longer_than_the_deadline() {
    let given = Given::with(
        Kind::Sqlite,
        Settings {
            deadline: Duration::from_millis(500),
            ..SETTINGS
        },
    );
    let hanging = hang(&given).await;
    // The blocking step's caller times out too and drops its reference.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let started = Instant::now();
    drop(Arc::into_inner(given.conversations).expect("the only one"));
    assert!(started.elapsed() < Duration::from_secs(2));
    drop(hanging);
}
