//! Commands as other programs use them: in pipes, on full disks, with JSON and with emails in place of IDs.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::{Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;
use tollgate::base::version::{COMMIT, COMMIT_DATE, FULL_VERSION, VERSION};

use crate::support::process::{Process, run, text, tollgate};

const NAMES: [&str; 2] = ["TOLLGATE_OPERATOR_URL", "TOLLGATE_OPERATOR_TOKEN"];

fn with(environment: &BTreeMap<String, String>) -> [(&str, &str); 2] {
    NAMES.map(|name| (name, environment[name].as_str()))
}

fn json(environment: &BTreeMap<String, String>, arguments: &[&str]) -> Value {
    let output = run(arguments, &with(environment));
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a command whose output goes to a device that is always full.
fn on_full_disk(environment: &BTreeMap<String, String>, arguments: &[&str]) -> Output {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = tollgate(arguments, &with(environment));
    let command = command.stdout(full).stderr(Stdio::piped());
    command.spawn().unwrap().wait_with_output().unwrap()
}

/// Runs a command whose output goes into a pipe that was closed.
fn into_closed_pipe(environment: &BTreeMap<String, String>, arguments: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = tollgate(arguments, &with(environment));
    let command = command.stdout(writer).stderr(Stdio::piped());
    command.spawn().unwrap().wait_with_output().unwrap()
}

#[tokio::test]
async fn a_closed_pipe_ends_a_command_quietly_and_a_full_disk_fails_it() {
    let data = TempDir::new().unwrap();
    let (_process, environment) = Process::dev(data.path()).await;
    let database = data.path().join("tollgate.db");
    let database = database.to_str().unwrap();
    for arguments in [
        &["account", "list"][..],
        &["model", "list", "--json"],
        &["audit"],
        &["route", "Hello"],
        &["config", "show"],
        &["export", "ledger", "--database", database],
        &["completions", "bash"],
        &["--help"],
    ] {
        let output = into_closed_pipe(&environment, arguments);
        let stderr = text(&output.stderr);
        assert_eq!(
            (output.status.code(), stderr.as_str()),
            (Some(0), ""),
            "{arguments:?}"
        );
    }
    for arguments in [
        &["account", "list"][..],
        &["account", "list", "--json"],
        &["audit"],
        &["export", "ledger", "--database", database],
        &["--help"],
        &["key", "create", "--help"],
        &["--version"],
    ] {
        let output = on_full_disk(&environment, arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(
            stderr.contains("No space left on device"),
            "{arguments:?}: {stderr}"
        );
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
    }
    let email = ["account", "create", "--email", "full@example.com"];
    let output = on_full_disk(&environment, &email);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("it was done, but standard output"),
        "{stderr}"
    );
}

#[tokio::test]
async fn a_key_that_cannot_be_printed_is_not_lost() {
    let data = TempDir::new().unwrap();
    let (_process, environment) = Process::dev(data.path()).await;
    let account = json(
        &environment,
        &["account", "create", "--email", "a@example.com", "--json"],
    );
    let id = account["id"].as_str().unwrap();
    let keys = || {
        let list = json(&environment, &["key", "list", id, "--json"]);
        let mut keys = list["data"].as_array().unwrap().clone();
        keys.retain(|key| key["state"] != "deleted");
        keys
    };
    let create = ["key", "create", id, "--name", "laptop"];
    for output in [
        on_full_disk(&environment, &create),
        into_closed_pipe(&environment, &create),
    ] {
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("The key was deleted again"), "{stderr}");
        assert!(!stderr.contains("sk-svc-"), "{stderr}");
        assert_eq!(keys(), Vec::<Value>::new());
    }

    // Programs use the present secret, and a second rotation would end it.
    let created = json(&environment, &["key", "create", id, "--json"]);
    let key = created["id"].as_str().unwrap();
    let output = on_full_disk(&environment, &["key", "rotate", key]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("was written to standard error"), "{stderr}");
    let prefix = keys()[0]["prefix"].as_str().unwrap().to_owned();
    assert!(
        stderr.contains(&prefix) && prefix != created["prefix"],
        "{stderr}"
    );

    let invite = ["account", "invite", id, "b@example.com"];
    let output = on_full_disk(&environment, &invite);
    let stderr = text(&output.stderr);
    assert!(stderr.contains("invite b@example.com again"), "{stderr}");
}

#[tokio::test]
async fn an_account_is_named_by_its_email() {
    let data = TempDir::new().unwrap();
    let (_process, environment) = Process::dev(data.path()).await;
    let create = ["account", "create", "--email", "Ada@example.com", "--json"];
    let account = json(&environment, &create);
    let id = account["id"].as_str().unwrap();
    let email = "ada@example.com";
    assert_eq!(
        json(&environment, &["account", "show", email, "--json"])["id"],
        id
    );
    json(&environment, &["credit", "grant", email, "5", "--json"]);
    assert_eq!(
        json(&environment, &["credit", "list", email, "--json"])["data"][0]["account_id"],
        id
    );
    assert_eq!(
        json(&environment, &["key", "create", email, "--json"])["account_id"],
        id
    );
    let budget = ["budget", "set", email, "3", "--period", "month", "--json"];
    assert_eq!(json(&environment, &budget)["account_id"], id);
    let limit = ["limit", "set", "--account", email, "--rpm", "7", "--json"];
    assert_eq!(json(&environment, &limit)["account"], id);
    let cleared = ["limit", "clear", "--account", email, "--json"];
    assert_eq!(json(&environment, &cleared)["account"], id);
    let limits = json(&environment, &["limit", "list", "--json"]);
    assert!(!limits.to_string().contains(id), "{limits}");
    let project = ["project", "create", email, "Search", "--json"];
    assert_eq!(json(&environment, &project)["name"], "Search");
    let person = ["account", "invite", email, "bob@example.com", "--json"];
    assert_eq!(json(&environment, &person)["email"], "bob@example.com");
    // Each list has something of its account in it.
    let demo = "demo@tollgate.local";
    for (arguments, account, field, value) in [
        (["project", "list"], email, "name", "Search"),
        (["key", "list"], email, "account_id", id),
        (["budget", "list"], email, "account_id", id),
        (["account", "people"], demo, "email", demo),
        (["member", "list"], demo, "email", demo),
    ] {
        let arguments = [&arguments[..], &[account, "--json"]].concat();
        let list = json(&environment, &arguments);
        let mut listed = list["data"].as_array().unwrap().iter();
        assert!(
            listed.any(|one| one[field] == value),
            "{arguments:?}: {list}"
        );
    }
    for (command, closed) in [("close", true), ("reopen", false)] {
        let changed = json(&environment, &["account", command, email, "--json"]);
        assert_eq!(changed["id"], id);
        assert_eq!(changed["closed"], closed);
    }
    let change = ["account", "change", email, "--tier", "standard", "--json"];
    assert_eq!(json(&environment, &change)["id"], id);
    let route = ["route", "Hello", "--account", email, "--json"];
    json(&environment, &route);
    let database = data.path().join("tollgate.db");
    let database = database.to_str().unwrap();
    let export = [
        "export",
        "ledger",
        "--account",
        email,
        "--database",
        database,
    ];
    let rows = text(&run(&export, &[]).stdout);
    assert_eq!(rows.lines().count(), 2, "{rows}");
    assert!(rows.contains(id), "{rows}");
    let summary = json(
        &environment,
        &[
            "export",
            "ledger",
            "--account",
            email,
            "--database",
            database,
            "--json",
        ],
    );
    assert_eq!(
        summary["account_id"], id,
        "rows are JSON lines, and there is one"
    );

    json(&environment, &create);
    for arguments in [&["account", "show", email][..], &export] {
        let output = run(arguments, &with(&environment));
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains("accounts have the email ada@example.com"),
            "{stderr}"
        );
    }
    let output = run(
        &["account", "close", "bob@example.com"],
        &with(&environment),
    );
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("no account has the email bob@example.com"),
        "{stderr}"
    );
}

#[test]
fn completions_and_manual_pages_have_every_command() {
    let folder = TempDir::new().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&run(&["completions", shell], &[]).stdout);
        assert!(
            script.contains("rotate") && script.contains("reset-two-factor"),
            "{shell}"
        );
    }
    let pages = folder.path().join("man1");
    let output = run(&["man", pages.to_str().unwrap()], &[]);
    assert_eq!(output.status.code(), Some(0));
    let page = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap();
    assert!(page("tollgate.1").contains("tollgate\\-account"));
    assert!(page("tollgate-key-rotate.1").contains("\\-\\-grace"));
    let output = run(&["man", pages.to_str().unwrap(), "--json"], &[]);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let listed = list["pages"].as_array().unwrap();
    assert_eq!(listed.len(), std::fs::read_dir(&pages).unwrap().count());
    assert!(
        listed
            .iter()
            .all(|page| Path::new(page.as_str().unwrap()).is_file())
    );
}

#[test]
fn the_version_has_the_commit_that_it_was_built_from() {
    let output = run(&["--version"], &[]);
    assert_eq!(output.status.code(), Some(0));
    let version = text(&output.stdout);
    assert_eq!(version.trim_end(), format!("tollgate {FULL_VERSION}"));
    // These tests are built in a clone, or from a tarball without one.
    let (Some(commit), Some(date)) = (COMMIT, COMMIT_DATE) else {
        assert_eq!(FULL_VERSION, VERSION);
        return;
    };
    assert_eq!(FULL_VERSION, format!("{VERSION} ({commit} {date})"));
    assert!(commit.len() >= 7 && commit.bytes().all(|digit| digit.is_ascii_hexdigit()));
    assert_eq!(date.len(), "2026-11-19".len(), "{date}");
}

#[tokio::test]
async fn health_is_asked_for_by_a_command() {
    let data = TempDir::new().unwrap();
    let (_process, environment) = Process::dev(data.path()).await;
    let origin = environment["OPENAI_BASE_URL"].trim_end_matches("/v1");
    let ready = run(&["health", "--url", origin], &[]);
    assert_eq!(ready.status.code(), Some(0), "{}", text(&ready.stderr));
    assert_eq!(text(&ready.stdout), "ready\n");
    let as_json = run(&["health", "--json"], &[("TOLLGATE_HEALTH_URL", origin)]);
    let body: Value = serde_json::from_slice(&as_json.stdout).unwrap();
    assert_eq!(body["service"], "tollgate");
    // Plain HTTP needs no certificates of the system.
    let nowhere = [("SSL_CERT_FILE", "/nowhere"), ("SSL_CERT_DIR", "/nowhere")];
    let bare = run(&["health", "--url", origin], &nowhere);
    assert_eq!(text(&bare.stdout), "ready\n", "{}", text(&bare.stderr));

    let other = run(
        &["health", "--url", &environment["TOLLGATE_OPERATOR_URL"]],
        &[],
    );
    assert_eq!(other.status.code(), Some(1));
    let closed = run(&["health", "--url", "http://127.0.0.1:1"], &[]);
    assert_eq!(closed.status.code(), Some(1));
    let said = text(&closed.stderr);
    assert!(
        said.contains("refused") && said.contains("set --url"),
        "{said}"
    );
}

/// A listener that responds like a gateway that stops.
#[tokio::test]
async fn a_gateway_that_takes_no_requests_fails_the_health_command() {
    let stopping = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", stopping.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut client, _) = stopping.accept().unwrap();
            let mut head = [0; 4096];
            let read = client.read(&mut head).unwrap();
            assert!(head[..read].starts_with(b"GET /health HTTP/1.1\r\n"));
            let response = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 21\r\n\r\n{\"status\":\"stopping\"}";
            client.write_all(response.as_bytes()).unwrap();
        }
    });
    let output = run(&["health", "--url", &url], &[]);
    let as_json = run(&["health", "--url", &url, "--json"], &[]);
    answering.join().unwrap();
    for (output, printed) in [(output, ""), (as_json, "{\"status\":\"stopping\"}\n")] {
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text(&output.stderr), "tollgate: stopping\n");
        assert_eq!(text(&output.stdout), printed);
    }
}
