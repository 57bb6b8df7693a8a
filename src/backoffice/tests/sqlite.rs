//! Faults of the SQLite file.

use std::{
    os::unix::fs::PermissionsExt as _,
    sync::mpsc,
    time::{Duration, Instant},
};

use rusqlite::Connection;

use super::*;
use crate::{
    backoffice::{DEADLINE, path_beside, probe},
    db::sqlite::schema::VERSION,
};

const GARBAGE: &str = "not a database, and long enough to be none";

impl Given {
    fn file(&self) -> PathBuf {
        let Place::Folder(folder) = &self.place else {
            unreachable!("a file has a folder")
        };
        file_in(folder)
    }
}

/// Calls every method; returns for each whether the store was available.
async fn call_every_method(backoffice: &Backoffice) -> Vec<bool> {
    let digest = [1; 32];
    vec![
        !is_unavailable(&backoffice.add_person(new_person("eve@example.com")).await),
        !is_unavailable(&backoffice.person("person_1").await),
        !is_unavailable(&backoffice.person_by_email("eve@example.com").await),
        !is_unavailable(&backoffice.set_password("person_1", "hash", None, NOW).await),
        !is_unavailable(&backoffice.set_role("person_1", Role::Operator).await),
        !is_unavailable(&backoffice.begin_session(new_session(1, None, NOW)).await),
        !is_unavailable(&backoffice.session(&digest, NOW).await),
        !is_unavailable(&backoffice.sessions_of("person_1", NOW).await),
        !is_unavailable(&backoffice.end_session(&digest).await),
        !is_unavailable(&backoffice.end_sessions_of("person_1", Some(&digest)).await),
        !is_unavailable(
            &backoffice
                .make_link(links::new_link("new@example.com"))
                .await,
        ),
        !is_unavailable(&backoffice.link(&digest, NOW).await),
        !is_unavailable(&backoffice.join_by_link(&digest, None, "hash", NOW).await),
        !is_unavailable(&backoffice.reset_by_link(&digest, "hash", NOW).await),
        !is_unavailable(&backoffice.people_of("acct_1").await),
        !is_unavailable(&backoffice.people_page("", None, 10).await),
        !is_unavailable(&backoffice.remove_person("person_1").await),
        !is_unavailable(&backoffice.prune(NOW).await),
        !is_unavailable(&backoffice.record(&actions::action("what", "acct_1")).await),
        !is_unavailable(&backoffice.actions_page(None, None, 10).await),
    ]
}

#[test]
fn the_file_is_beside_the_ledgers() {
    for (database, file) in [
        ("data/tollgate.db", "data/tollgate.portal.db"),
        ("tollgate", "tollgate.portal.db"),
        ("/a.b/c.d.db", "/a.b/c.d.portal.db"),
    ] {
        assert_eq!(path_beside(database.as_ref()), PathBuf::from(file));
    }
}

#[tokio::test]
async fn the_files_are_readable_by_their_owner_only() {
    let given = Given::sqlite();
    given.person("ada@example.com").await;
    let folder = given.file().parent().unwrap().to_owned();
    let files: Vec<_> = folder.read_dir().unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in files {
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file:?}");
    }
}

#[tokio::test]
async fn the_file_is_created_at_the_first_use() {
    let folder = TempDir::new().unwrap();
    let database = folder.path().join("store/t.db");
    let backoffice = Backoffice::beside(&database);
    assert!(!database.parent().unwrap().exists());
    assert!(probe(&database).unwrap().ends_with("will be created"));
    backoffice.prune(NOW).await.unwrap();
    assert!(
        probe(&database)
            .unwrap()
            .ends_with(&format!("exists (version {VERSION})"))
    );
}

#[tokio::test]
async fn a_file_of_garbage_is_unavailable_until_it_is_removed() {
    let given = Given::sqlite();
    given.person("ada@example.com").await;
    let file = given.file();
    drop(given.backoffice);
    std::fs::write(&file, GARBAGE.repeat(99)).unwrap();
    let backoffice = given.place.open();
    for _ in 0..2 {
        assert!(!call_every_method(&backoffice).await.contains(&true));
    }
    assert!(probe(&file.with_file_name("t.db")).is_err());
    std::fs::remove_file(&file).unwrap();
    assert!(!call_every_method(&backoffice).await.contains(&false));
}

/// Operations on a damaged file succeed or fail, and all succeed again once it is removed.
#[tokio::test]
async fn a_file_damaged_while_open_can_be_replaced() {
    for garbage in ["", "garbage", &"x".repeat(1 << 16)] {
        let given = Given::sqlite();
        for number in 0..20 {
            let person = given.person(&format!("{number}@example.com")).await;
            given.session(number, &person, NOW).await;
        }
        std::fs::write(given.file(), garbage).unwrap();
        for _ in 0..5 {
            call_every_method(&given.backoffice).await;
        }
        std::fs::remove_file(given.file()).unwrap();
        assert!(!call_every_method(&given.backoffice).await.contains(&false));
    }
}

/// Damaged pages in the middle are noticed only when they are read.
#[tokio::test]
async fn a_partly_damaged_file_is_unavailable_where_it_is_damaged() {
    let given = Given::sqlite();
    for number in 0..50 {
        given.person(&format!("{number}@example.com")).await;
    }
    let file = given.file();
    drop(given.backoffice);
    let mut bytes = std::fs::read(&file).unwrap();
    let page = 4096;
    assert!(bytes.len() > 8 * page);
    bytes[page..].fill(0xee);
    std::fs::write(&file, bytes).unwrap();
    let backoffice = given.place.open();
    let available = call_every_method(&backoffice).await;
    assert!(available.contains(&false), "{available:?}");
    let found = backoffice.person_by_email("7@example.com").await;
    assert!(is_unavailable(&found), "{found:?}");
}

#[tokio::test]
async fn invalid_rows_are_reported_as_unavailable() {
    let given = Given::sqlite();
    let ada = given.person("ada@example.com").await;
    for spoil in [
        "UPDATE backoffice_people SET role = 'emperor'",
        "UPDATE backoffice_people SET role = 'customer', created_at = 'now'",
        "UPDATE backoffice_people SET created_at = 1.5",
        "UPDATE backoffice_people SET created_at = 1, email = x'ff'",
        "UPDATE backoffice_people SET email = CAST(x'ff' AS TEXT)",
    ] {
        given.run(spoil).await;
        let found = given.backoffice.person(&ada.id).await;
        assert!(is_unavailable(&found), "{spoil}: {found:?}");
    }
    given
        .run("UPDATE backoffice_people SET email = 'ada@example.com'")
        .await;
    given.backoffice.person(&ada.id).await.unwrap().unwrap();
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
    let backoffice = Backoffice::beside(&database);
    let refused = backoffice.person("person_1").await.unwrap_err().to_string();
    let reason = format!(
        "t.portal.db was made by another version of tollgate (schema version {}, this one uses {VERSION}); run that \
         version, or move the file away to begin with an empty one: see Upgrade in docs/OPERATIONS.md",
        VERSION + 1
    );
    assert!(refused.ends_with(&reason), "{refused}");
    assert!(probe(&database).unwrap_err().ends_with(&reason));
    assert_eq!(std::fs::read(path_beside(&database)).unwrap(), before);
}

#[tokio::test]
async fn an_unwritable_folder_is_tried_again() {
    let folder = TempDir::new().unwrap();
    let database = folder.path().join("store/t.db");
    std::fs::write(folder.path().join("store"), "a file, not a folder").unwrap();
    let backoffice = Backoffice::beside(&database);
    assert!(!call_every_method(&backoffice).await.contains(&true));
    std::fs::remove_file(folder.path().join("store")).unwrap();
    assert!(!call_every_method(&backoffice).await.contains(&false));
}

#[tokio::test]
async fn a_locked_file_can_be_read_and_is_written_later() {
    let given = Given::sqlite();
    let ada = given.person("ada@example.com").await;
    let other_process = Connection::open(given.file()).unwrap();
    other_process.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let started = Instant::now();
    let added = given
        .backoffice
        .add_person(new_person("grace@example.com"))
        .await;
    assert!(is_unavailable(&added), "{added:?}");
    assert!(started.elapsed() < DEADLINE);
    assert_eq!(given.backoffice.person(&ada.id).await.unwrap(), Some(ada));
    other_process.execute_batch("ROLLBACK").unwrap();
    given.person("grace@example.com").await;
}

/// With a disk that hangs, all operations time out and only the first one occupies a thread. Those that waited are
/// cancelled and not executed later.
#[tokio::test]
async fn a_hanging_disk_times_out() {
    let given = Given::sqlite();
    let ada = given.person("ada@example.com").await;
    let backoffice = Arc::new(Backoffice::on(
        Store::File(SqliteStore::new(&given.file())),
        Duration::from_millis(500),
    ));
    let (release, released) = mpsc::channel::<()>();
    let (begin, has_begun) = tokio::sync::oneshot::channel();
    let hanging = tokio::spawn({
        let backoffice = backoffice.clone();
        async move {
            let Store::File(file) = &backoffice.store else {
                unreachable!()
            };
            let work = move |_: &mut Connection| {
                let _ = begin.send(());
                let _ = released.recv();
                Ok(())
            };
            file.work(work).await
        }
    });
    has_begun.await.unwrap();
    let started = Instant::now();
    let tasks = (0..50).map(|_| {
        let (backoffice, id) = (backoffice.clone(), ada.id.clone());
        tokio::spawn(async move { backoffice.set_role(&id, Role::Operator).await })
    });
    for one in tasks.collect::<Vec<_>>() {
        let timed_out = one.await.unwrap();
        assert!(is_unavailable(&timed_out), "{timed_out:?}");
    }
    assert!(started.elapsed() < Duration::from_secs(2));
    drop(release);
    hanging.await.unwrap().unwrap();
    let found = backoffice.person(&ada.id).await.unwrap();
    assert_eq!(found, Some(ada));
}

#[tokio::test]
async fn a_panic_fails_its_own_operation_only() {
    let given = Given::sqlite();
    let ada = given.person("ada@example.com").await;
    let Store::File(file) = &given.backoffice.store else {
        unreachable!()
    };
    let work = |_: &mut Connection| -> rusqlite::Result<()> { panic!("on purpose") };
    let panicked = file.work(work).await;
    assert!(is_unavailable(&panicked), "{panicked:?}");
    assert_eq!(given.backoffice.person(&ada.id).await.unwrap(), Some(ada));
}

/// The second statement fails, and the first is rolled back.
#[tokio::test]
async fn an_operation_is_atomic() {
    let given = Given::sqlite();
    let ada = given.person("ada@example.com").await;
    let statements = vec![
        statement("UPDATE backoffice_people SET name = $1", ["Eve".into()]),
        statement("UPDATE backoffice_nowhere SET name = $1", ["Eve".into()]),
    ];
    assert!(is_unavailable(&given.backoffice.run(statements).await));
    assert_eq!(given.backoffice.person(&ada.id).await.unwrap(), Some(ada));
}
