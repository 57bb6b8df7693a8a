//! Path, permissions, size and damage of the file.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::{
    conversations::{path_beside, probe},
    db::sqlite::{FileError, schema::VERSION},
};

#[test]
fn the_file_is_beside_the_ledgers() {
    for (database, file) in [
        ("data/tollgate.db", "data/tollgate.responses.db"),
        ("tollgate", "tollgate.responses.db"),
        ("/a.b/c.d.db", "/a.b/c.d.responses.db"),
    ] {
        assert_eq!(path_beside(database.as_ref()), PathBuf::from(file));
    }
}

#[tokio::test]
async fn the_files_are_readable_by_their_owner_only() {
    let given = Given::sqlite();
    given.store("a", "resp_1").await;
    let folder = given.file().parent().unwrap().to_owned();
    let files: Vec<_> = folder.read_dir().unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in files {
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file:?}");
    }
}

/// The space of evicted records is reused.
#[tokio::test]
async fn the_file_has_a_maximum_size() {
    let given = Given::with(
        Kind::Sqlite,
        Settings {
            in_all: 4,
            ..LONG_DEADLINE
        },
    );
    for number in 0..100 {
        let record = Record {
            input: "x".repeat(250 << 10),
            ..record("a", &format!("resp_{number}"))
        };
        given.conversations.store(record).await.unwrap();
    }
    let folder = given.file().parent().unwrap().read_dir().unwrap();
    let bytes: u64 = folder
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(bytes < 8 << 20, "{bytes} of the 25 MB that were written");
}

#[tokio::test]
async fn a_deleted_file_is_created_again() {
    let given = Given::sqlite();
    given.store("a", "resp_1").await;
    // Alone, and together with the files that SQLite puts beside it.
    for folder in [false, true] {
        if folder {
            std::fs::remove_dir_all(given.file().parent().unwrap()).unwrap();
        } else {
            std::fs::remove_file(given.file()).unwrap();
        }
        assert!(!given.has("a", "resp_1").await);
        given.store("a", "resp_1").await;
        assert!(given.has("a", "resp_1").await);
        let mode = given.file().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert!(given.restart().has("a", "resp_1").await, "on the disk");
}

#[tokio::test]
async fn a_file_of_garbage_is_unavailable_until_it_is_removed() {
    let given = Given::sqlite();
    given.store("a", "resp_1").await;
    let file = given.file();
    drop(given.conversations);
    std::fs::write(
        &file,
        "not a database, and long enough to be none".repeat(99),
    )
    .unwrap();
    let conversations = given.place.open(LONG_DEADLINE, &given.now_ms);
    for _ in 0..2 {
        let found = conversations.find("a", "resp_1").await;
        assert!(found.is_err(), "{found:?}");
        let stored = conversations.store(record("a", "resp_1")).await;
        assert!(stored.is_err(), "{stored:?}");
        assert!(conversations.delete("a", "resp_1").await.is_err());
    }
    assert!(probe(&file.with_file_name("t.db")).is_err());
    std::fs::remove_file(&file).unwrap();
    let stored = conversations.store(record("a", "resp_1")).await;
    assert_eq!(stored.unwrap(), StoreOutcome::Stored);
}

/// Operations on an overwritten file succeed or fail, and all succeed again once it is removed.
#[tokio::test]
async fn a_file_overwritten_while_open_can_be_replaced() {
    for garbage in ["", "garbage", &"x".repeat(1 << 16)] {
        let given = Given::sqlite();
        for number in 0..50 {
            given.store("a", &format!("resp_{number}")).await;
        }
        std::fs::write(given.file(), garbage).unwrap();
        for number in 0..50 {
            let id = format!("resp_{number}");
            let _ = given.conversations.find("a", &id).await;
            let _ = given.conversations.store(record("b", &id)).await;
            let _ = given.conversations.delete("a", &id).await;
        }
        std::fs::remove_file(given.file()).unwrap();
        given.store("a", "resp_1").await;
        assert!(given.has("a", "resp_1").await);
    }
}

#[tokio::test]
async fn an_unwritable_folder_is_tried_again() {
    let folder = TempDir::new().unwrap();
    let database = folder.path().join("store/t.db");
    std::fs::write(folder.path().join("store"), "a file, not a folder").unwrap();
    let conversations = Conversations::beside(&database);
    let refused = conversations.store(record("a", "resp_1")).await;
    let files = matches!(
        refused,
        Err(StorageError::Unavailable(Cause::File(
            FileError::Files { .. }
        )))
    );
    assert!(files, "{refused:?}");
    assert!(probe(&database).is_err());
    std::fs::remove_file(folder.path().join("store")).unwrap();
    assert!(probe(&database).unwrap().ends_with("will be created"));
    let kept = conversations.store(record("a", "resp_1")).await;
    assert_eq!(kept.unwrap(), StoreOutcome::Stored);
    assert!(
        probe(&database)
            .unwrap()
            .ends_with(&format!("exists (version {VERSION})"))
    );
}

#[tokio::test]
async fn a_file_of_another_version_is_refused_and_unchanged() {
    let folder = TempDir::new().unwrap();
    let database = folder.path().join("t.db");
    let newer = Connection::open(path_beside(&database)).unwrap();
    newer
        .pragma_update(None, "user_version", VERSION + 1)
        .unwrap();
    drop(newer);
    let before = std::fs::read(path_beside(&database)).unwrap();
    let conversations = Conversations::beside(&database);
    let refused = conversations.find("a", "resp_1").await.unwrap_err();
    let reason = format!(
        "t.responses.db was made by another version of tollgate (schema version {}, this one uses {VERSION}); run that \
         version, or move the file away to begin with an empty one: see Upgrade in docs/OPERATIONS.md",
        VERSION + 1
    );
    assert!(refused.to_string().ends_with(&reason), "{refused}");
    assert!(probe(&database).unwrap_err().ends_with(&reason));
    assert_eq!(std::fs::read(path_beside(&database)).unwrap(), before);
}
