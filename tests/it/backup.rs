//! `tollgate backup`: copies of a gateway that serves, which another gateway then serves from.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    process_stop_money::{MODEL, STREAMS, begun, read, slow_upstream},
    support::{
        Load, Serving,
        process::{run, text},
        stores::{self, files_only},
    },
};

const SIMULATOR: &str = "kind = \"simulator\"";

/// Runs `tollgate backup` for the gateway in this folder. Returns its exit code, its output and its messages.
async fn back_up(folder: &Path, copy: &Path) -> (Option<i32>, String, String) {
    let config = folder.join("tollgate.toml");
    let copy = copy.to_owned();
    let output = tokio::task::spawn_blocking(move || {
        let (copy, config) = (copy.to_str().unwrap(), config.to_str().unwrap());
        run(&["backup", copy, "--config", config], &[])
    });
    let output = output.await.unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    (output.status.code(), stdout, stderr)
}

/// Moves copies into a new folder, as the command says.
fn restore(copy: &Path) -> TempDir {
    let folder = TempDir::new().unwrap();
    let move_to = |from: PathBuf, to: &str| {
        if from.exists() {
            fs::rename(from, folder.path().join(to)).unwrap();
        }
    };
    move_to(copy.to_owned(), "tollgate.db");
    move_to(copy.with_extension("portal.db"), "tollgate.portal.db");
    move_to(copy.with_extension("responses.db"), "tollgate.responses.db");
    fs::create_dir(folder.path().join("spool")).unwrap();
    move_to(copy.with_extension("spool"), "spool/restored.spool");
    stores::assert_sound(folder.path());
    folder
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_has_every_call_that_had_ended_and_can_be_served() {
    if files_only("PostgreSQL has tools of its own") {
        return;
    }
    let serving = Serving::start(60).await;
    let account = serving.account_id().to_owned();
    let invitation = format!("/operator/accounts/{account}/invitations");
    serving
        .post(&invitation, json!({ "email": "b@example.com" }))
        .await;
    let stored = respond(&serving, json!({ "input": "Hello" })).await;

    let load = Load::start(&serving, 4);
    load.go_on_for(100).await;
    let answered = load.answered();
    let kept = TempDir::new().unwrap();
    let copies = kept.path().join("of/november");
    let copy = copies.join("monday.db");
    let (code, stdout, stderr) = back_up(serving.folder(), &copy).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    load.go_on_for(10).await;
    let all = load.stop().await;
    let files = ["monday.db", "monday.portal.db", "monday.responses.db"];
    assert_eq!(names(&copies), files.map(str::to_owned).into());
    let original = serving.folder().join("tollgate.db");
    for words in files.into_iter().chain([
        original.to_str().unwrap(),
        "move its old files away",
        "tollgate audit --database",
    ]) {
        assert!(stdout.contains(words), "{words}: {stdout}");
    }
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    for file in files {
        assert_eq!(mode(&copies.join(file)), 0o600, "{file}");
    }
    for folder in [&copies, copies.parent().unwrap()] {
        assert_eq!(mode(folder), 0o700, "created for this user alone");
    }

    let restored = serving.start_on_copy(restore(&copy), SIMULATOR).await;
    assert!(
        names(&copies).is_empty(),
        "an audit leaves no files beside a copy"
    );
    let usage = restored
        .get(&format!("/operator/accounts/{account}/usage"))
        .await;
    let usage = usage["data"].as_array().unwrap();
    let charged: BTreeSet<_> = usage
        .iter()
        .map(|row| row["request_id"].as_str().unwrap())
        .collect();
    assert_eq!(charged.len(), usage.len(), "no call twice");
    let lost: Vec<_> = answered
        .iter()
        .filter(|id| !charged.contains(id.as_str()))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(charged.len() <= all.len() + 1, "of one moment");

    // It serves: the key, the stored response and the invitation are there.
    let next = json!({ "input": "And now?", "previous_response_id": stored["id"] });
    assert_eq!(respond(&restored, next).await["status"], "completed");
    let portal = rusqlite::Connection::open(restored.folder().join("tollgate.portal.db")).unwrap();
    let links = "SELECT count(*) FROM backoffice_links WHERE email = 'b@example.com'";
    let links: i64 = portal.query_row(links, [], |row| row.get(0)).unwrap();
    assert_eq!(links, 1);
    let audit = restored.post("/operator/audit", json!({})).await;
    assert_eq!(audit["ok"], true, "{audit}");
    let ended = restored.process.terminated().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

async fn respond(serving: &Serving, mut body: Value) -> Value {
    body["model"] = MODEL.into();
    let url = format!("http://{}/v1/responses", serving.public);
    let request = serving
        .client
        .post(url)
        .bearer_auth(&serving.key)
        .json(&body);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    response.json().await.unwrap()
}

/// Streams were delivered while the ledger could not be written: their charges are in the spool, and in the backup.
#[tokio::test(flavor = "multi_thread")]
async fn pending_charges_are_in_a_backup_and_are_charged_once() {
    if files_only("PostgreSQL has tools of its own") {
        return;
    }
    let (upstream, gate) = slow_upstream().await;
    let serving = Serving::start_on(&upstream, 1).await;
    let streams = begun(&serving).await;
    let lock = rusqlite::Connection::open(serving.folder().join("tollgate.db")).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    gate.open();
    for stream in read(streams).await {
        stream.assert_complete(MODEL);
    }
    assert_eq!(
        serving.metric("tollgate_spooled_charges").await,
        STREAMS.to_string()
    );
    let copies = TempDir::new().unwrap();
    let copy = copies.path().join("monday.db");
    let (code, stdout, stderr) = back_up(serving.folder(), &copy).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert!(stdout.contains("monday.spool"), "{stdout}");
    drop(lock);

    let provider = format!(
        "kind = \"openai\"\nbase_url = \"http://{}/v1\"",
        upstream.address
    );
    let restored = serving.start_on_copy(restore(&copy), &provider).await;
    restored.until_metric("tollgate_spooled_charges", "0").await;
    // 100 × 4,600 nano-dollars.
    assert_eq!(
        restored.ledger_view().await,
        ("99.999540".to_owned(), STREAMS)
    );
    stores::assert_sound(restored.folder());
}

#[test]
fn a_backup_overwrites_nothing_and_leaves_nothing_half_done() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("empty.db"), "").unwrap();
    fs::write(
        path("other.db"),
        "this is no database, whatever its name says".repeat(100),
    )
    .unwrap();
    fs::write(path("old.portal.db"), "").unwrap();
    let before = names(folder.path());
    for (copy, database, message) in [
        ("empty.db", "empty.db", "exists and is not overwritten"),
        (
            "old.db",
            "empty.db",
            "old.portal.db exists and is not overwritten",
        ),
        ("new.db", "nowhere.db", "there is no database"),
        (
            "new.db",
            "empty.db",
            "it has no tables; is it the database of a gateway?",
        ),
        ("new.db", "other.db", "cannot be copied"),
        ("new", "empty.db", "does not end with .db"),
        ("other.db/new.db", "empty.db", "cannot be created"),
    ] {
        let done = run(&["backup", &path(copy), "--database", &path(database)], &[]);
        let (stdout, stderr) = (text(&done.stdout), text(&done.stderr));
        assert_eq!(
            (done.status.code(), stdout.as_str()),
            (Some(1), ""),
            "{copy} of {database}"
        );
        assert!(stderr.contains(message), "{stderr}");
        assert_eq!(names(folder.path()), before, "{copy} of {database}");
    }
    let url = "postgres://tollgate:secret@127.0.0.1:1/tollgate";
    let done = run(&["backup", &path("new.db"), "--database", url], &[]);
    let stderr = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1));
    assert!(
        stderr.contains("pg_dump") && !stderr.contains("secret"),
        "{stderr}"
    );
    let done = run(&["backup", &path("new.db")], &[]);
    assert_eq!(done.status.code(), Some(2), "a store must be named");
}
