//! Locks, disks that hang, queues that are full.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use super::*;
use crate::{conversations::path_beside, db::sqlite::FileError};

/// Keeps the thread busy until it is dropped.
struct Hanging(#[expect(dead_code, reason = "held")] mpsc::Sender<()>);

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

async fn until_well(given: &Given) {
    let started = Instant::now();
    while given.in_file().worker.is_failing() {
        assert!(started.elapsed() < Duration::from_secs(5), "still failing");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_file_that_someone_locks_is_unavailable_until_they_let_go() {
    let given = Given::sqlite();
    given.store("a", "before").await;
    let stranger = Connection::open(given.file()).unwrap();
    stranger.execute_batch("BEGIN EXCLUSIVE").unwrap();
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
        assert!(given.in_file().worker.is_failing());
    }
    assert!(given.has("a", "before").await, "a lock does not stop reads");
    stranger.execute_batch("ROLLBACK").unwrap();
    given.store("a", "after").await;
    assert!(given.has("a", "before").await && given.has("a", "after").await);
    assert!(!given.has("a", "during").await);
    until_well(&given).await;
}

/// A file without a write-ahead log keeps readers out as well.
#[tokio::test]
async fn a_file_that_is_locked_before_it_is_opened_is_opened_later() {
    let folder = TempDir::new().unwrap();
    let database = folder.path().join("t.db");
    let stranger = Connection::open(path_beside(&database)).unwrap();
    stranger.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let conversations = Conversations::beside(&database);
    let started = Instant::now();
    assert!(conversations.find("a", "resp_1").await.is_err());
    assert!(started.elapsed() < SETTINGS.deadline);
    stranger.execute_batch("ROLLBACK").unwrap();
    let kept = conversations.store(record("a", "resp_1")).await;
    assert_eq!(kept.unwrap(), Kept::Stored);
    assert!(conversations.find("a", "resp_1").await.unwrap().is_some());
}

/// The limit is the connection's own, so that it heals shows that the connection is another one.
#[tokio::test]
async fn a_connection_that_failed_is_not_used_again() {
    let given = Given::sqlite();
    given.store("a", "before").await;
    let fill = |connection: &mut Connection| {
        connection.query_row("PRAGMA max_page_count = 1", [], |row| row.get::<_, i64>(0))
    };
    given.in_file().worker.run(fill).await.unwrap();
    let large = Record {
        input: "x".repeat(200 << 10),
        ..record("a", "large")
    };
    let refused = given.conversations.store(large.clone()).await;
    assert!(refused.unwrap_err().to_string().ends_with("is full"));
    assert_eq!(
        given.conversations.store(large).await.unwrap(),
        Kept::Stored
    );
    assert!(given.has("a", "before").await);
    until_well(&given).await;
}

#[tokio::test]
async fn whoever_has_waited_long_enough_is_told_and_the_work_is_done_later() {
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
    assert!(given.in_file().worker.is_failing());
    drop(hanging);
    until_well(&given).await;
    assert!(given.has("a", "resp_1").await);
}

#[tokio::test]
async fn a_full_queue_answers_at_once() {
    let given = Given::sqlite();
    let hanging = hang(&given).await;
    let waiting = (0..SETTINGS.waiting).map(|number| {
        let conversations = given.conversations.clone();
        let record = record("a", &format!("resp_{number}"));
        tokio::spawn(async move { conversations.store(record).await })
    });
    let waiting: Vec<_> = waiting.collect();
    tokio::time::sleep(Duration::from_millis(200)).await; // each has queued by then
    let started = Instant::now();
    let refused = given.conversations.find("a", "resp_1").await;
    let full = matches!(refused, Err(StorageError::Unavailable(Cause::QueueFull)));
    assert!(full, "{refused:?}");
    assert!(started.elapsed() < SETTINGS.deadline / 10);
    drop(hanging);
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().unwrap(), Kept::Stored);
    }
    until_well(&given).await;
}

#[tokio::test]
async fn a_panic_takes_down_its_own_caller_only() {
    let given = Given::sqlite();
    given.store("a", "resp_1").await;
    let work = |_: &mut Connection| -> rusqlite::Result<()> { panic!("on purpose") };
    let panicked = given.in_file().worker.run(work).await;
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
    // Whoever kept the thread busy gives up too, and holds nothing any more.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let started = Instant::now();
    drop(Arc::into_inner(given.conversations).expect("the only one"));
    assert!(started.elapsed() < Duration::from_secs(2));
    drop(hanging);
}
