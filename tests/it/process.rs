//! The real binary: `dev` and the operator's commands.

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt as _};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    Process,
    gateway::hello,
    process::{run, text},
};

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

async fn chat(environment: &BTreeMap<String, String>, model: &str) -> (u16, Value) {
    let url = format!("{}/chat/completions", environment["OPENAI_BASE_URL"]);
    let request = client().post(url).json(&hello(model));
    let response = request.bearer_auth(&environment["OPENAI_API_KEY"]);
    let response = response.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn dev_needs_only_a_folder() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("not/there/yet");
    let (process, environment) = Process::dev(&data).await;

    let names: Vec<_> = environment.keys().map(String::as_str).collect();
    let expected = [
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "TOLLGATE_OPERATOR_TOKEN",
        "TOLLGATE_OPERATOR_URL",
        "TOLLGATE_PORTAL_EMAIL",
        "TOLLGATE_PORTAL_PASSWORD",
        "TOLLGATE_PORTAL_URL",
    ];
    assert_eq!(names, expected);
    let mode = std::fs::metadata(data.join("dev.env"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "it holds a key");
    let base = &environment["OPENAI_BASE_URL"];
    assert!(
        base.starts_with("http://127.0.0.1:") && base.ends_with("/v1"),
        "{base}"
    );
    let operator = environment["TOLLGATE_OPERATOR_URL"]
        .strip_prefix("http://")
        .unwrap();
    let operator: std::net::SocketAddr = operator.parse().expect("the origin, without a path");
    assert_ne!(operator.port(), 0);

    let welcome = process.stdout();
    let (key, token) = (
        &environment["OPENAI_API_KEY"],
        &environment["TOLLGATE_OPERATOR_TOKEN"],
    );
    assert!(welcome.contains("curl ") && welcome.contains(base) && welcome.contains(key.as_str()));
    assert!(
        !welcome.contains(token.as_str()),
        "the operator token is in dev.env alone"
    );

    for word in ["URL", "EMAIL", "PASSWORD"] {
        let value = &environment[&format!("TOLLGATE_PORTAL_{word}")];
        assert!(welcome.contains(value.as_str()), "{word}: {welcome}");
    }

    let models = client().get(format!("{base}/models")).bearer_auth(key);
    let models: Value = models.send().await.unwrap().json().await.unwrap();
    let models = models["data"].as_array().unwrap();
    assert_eq!(models.len(), 17, "all of them work");
    for model in models {
        let id = model["id"].as_str().unwrap();
        let (status, body) = chat(&environment, id).await;
        assert_eq!(status, 200, "{id}: {body}");
        assert_eq!(body["model"], id);
    }
    let ended = process.terminated().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

/// Coding agents work unconfigured: their default models are served, and the demo account has room for them.
#[tokio::test]
async fn dev_serves_the_names_that_agents_ask_for() {
    let data = TempDir::new().unwrap();
    let (process, environment) = Process::dev(data.path()).await;
    for name in [
        "claude-opus-5-5",
        "gpt-6.1-sol",
        "gpt-4o-mini",
        "codex-mini-latest",
        "o3",
        "o4-mini",
    ] {
        let (status, body) = chat(&environment, name).await;
        assert_eq!(status, 200, "{name}: {body}");
        assert_eq!(body["model"], name);
    }
    let limits = json(&operator(&environment, &["limit", "list", "--json"]));
    let [demo] = limits["data"].as_array().unwrap().as_slice() else {
        panic!("one rule: {limits}");
    };
    assert_eq!(
        (&demo["rpm"], &demo["tpm"]),
        (&600.into(), &2_000_000.into())
    );
    let account = demo["account"].as_str().unwrap();
    operator(
        &environment,
        &["limit", "set", "--account", account, "--rpm", "7"],
    );
    drop(process);
    let (_process, environment) = Process::dev(data.path()).await;
    let limits = json(&operator(&environment, &["limit", "list", "--json"]));
    assert_eq!(limits["data"][0]["rpm"], 7, "what was set is kept");
}

#[tokio::test]
async fn a_second_start_finds_the_same_account_and_key() {
    let data = TempDir::new().unwrap();
    let (process, first) = Process::dev(data.path()).await;
    process.signal("INT");
    assert_eq!(
        process.ended().await.code,
        Some(0),
        "Ctrl-C ends it cleanly"
    );
    let (process, second) = Process::dev(data.path()).await;
    for kept in ["OPENAI_API_KEY", "TOLLGATE_OPERATOR_TOKEN"] {
        assert_eq!(first[kept], second[kept], "{kept}");
    }
    assert_eq!(chat(&second, "svc-native-fast").await.0, 200);
    let accounts = json(&operator(&second, &["account", "list", "--json"]));
    let accounts = accounts["data"].as_array().unwrap();
    assert_eq!(accounts.len(), 1, "no second demo account");
    assert_eq!(
        (&accounts[0]["track"], &accounts[0]["tier"]),
        (&"business".into(), &"flex".into())
    );
    let keys = operator(
        &second,
        &["key", "list", accounts[0]["id"].as_str().unwrap(), "--json"],
    );
    assert_eq!(
        json(&keys)["data"].as_array().unwrap().len(),
        1,
        "no second key"
    );
    drop(process);
}

#[tokio::test]
async fn two_processes_do_not_share_a_store() {
    let data = TempDir::new().unwrap();
    let (process, environment) = Process::dev(data.path()).await;
    let env_file = data.path().join("dev.env");
    let before = std::fs::read_to_string(&env_file).unwrap();
    let path = data.path().to_str().unwrap();
    let second = run(
        &["dev", "--port", "0", "--operator-port", "0", "--data", path],
        &[],
    );
    assert_eq!(second.status.code(), Some(1));
    let stderr = text(&second.stderr);
    assert!(
        stderr.contains("in use by another tollgate process"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "one plain sentence: {stderr}");
    assert_eq!(text(&second.stdout), "");
    assert_eq!(std::fs::read_to_string(&env_file).unwrap(), before);
    assert_eq!(
        chat(&environment, "svc-native-fast").await.0,
        200,
        "the first one runs on"
    );
    drop(process);
    let (_process, _) = Process::dev(data.path()).await; // a killed process leaves no lock
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let data = TempDir::new().unwrap();
    let path = data.path().to_str().unwrap();
    let refused = run(
        &[
            "dev",
            "--port",
            &port,
            "--operator-port",
            "0",
            "--data",
            path,
        ],
        &[],
    );
    assert_eq!(refused.status.code(), Some(1));
    let stderr = text(&refused.stderr);
    assert!(
        stderr.contains(&port) && stderr.contains("--port"),
        "{stderr}"
    );
}

/// The way out is one that `tollgate dev` has, not an option of `tollgate serve`.
#[tokio::test]
async fn a_file_of_another_version_can_be_moved_away() {
    let data = TempDir::new().unwrap();
    let file = data.path().join("tollgate.portal.db");
    let other = rusqlite::Connection::open(&file).unwrap();
    other.pragma_update(None, "user_version", 999).unwrap();
    drop(other);
    let path = data.path().to_str().unwrap();
    let refused = run(
        &["dev", "--port", "0", "--operator-port", "0", "--data", path],
        &[],
    );
    assert_eq!(refused.status.code(), Some(1));
    let stderr = text(&refused.stderr);
    let advice = format!("Move {} away", file.display());
    for told in ["another version of tollgate", &advice] {
        assert!(stderr.contains(told), "{told}: {stderr}");
    }
    assert!(!stderr.contains("--without-console-changes"), "{stderr}");
    std::fs::rename(&file, data.path().join("away.db")).unwrap();
    let (_process, _) = Process::dev(data.path()).await;
}

/// Runs an operator's command against a running gateway; returns its exit code, stdout and stderr.
fn operator(environment: &BTreeMap<String, String>, arguments: &[&str]) -> (i32, String, String) {
    let names = ["TOLLGATE_OPERATOR_URL", "TOLLGATE_OPERATOR_TOKEN"];
    let environment = names.map(|name| (name, environment[name].as_str()));
    let output = run(arguments, &environment);
    let code = output.status.code().unwrap();
    (code, text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn json((code, stdout, stderr): &(i32, String, String)) -> Value {
    assert_eq!((*code, stderr.as_str()), (0, ""), "{stdout}");
    serde_json::from_str(stdout).expect("the API's answer as it is")
}

#[tokio::test]
async fn the_operators_commands_do_what_the_api_does() {
    let data = TempDir::new().unwrap();
    let (_process, environment) = Process::dev(data.path()).await;
    let command = |arguments: &[&str]| json(&operator(&environment, arguments));

    let account = command(&["account", "create", "--email", "a@example.com", "--json"]);
    assert_eq!(
        (&account["track"], &account["tier"]),
        (&"personal".into(), &"free".into())
    );
    let id = account["id"].as_str().unwrap();
    assert_eq!(
        command(&["account", "change", id, "--tier", "pro", "--json"])["tier"],
        "pro"
    );
    let grant = command(&["credit", "grant", id, "12.5", "--reason", "gift", "--json"]);
    assert_eq!(
        (&grant["amount"], &grant["reason"]),
        (&"12.500000".into(), &"gift".into())
    );
    assert_eq!(
        command(&["account", "show", id, "--json"])["balance"],
        "12.500000"
    );
    assert_eq!(
        command(&["credit", "list", id, "--json"])["data"][0]["id"],
        grant["id"]
    );

    let key = command(&["key", "create", id, "--name", "laptop", "--json"]);
    let key_id = key["id"].as_str().unwrap();
    let mut caller = environment.clone();
    caller.insert("OPENAI_API_KEY".into(), key["key"].as_str().unwrap().into());
    let rotated = command(&["key", "rotate", key_id, "--grace", "60", "--json"]);
    assert_eq!(rotated["previous"]["prefix"], key["prefix"]);
    assert_ne!(rotated["key"], key["key"]);
    assert_eq!(chat(&caller, "svc-pro").await.0, 200);
    let rotated = command(&["key", "rotate", key_id, "--grace", "0", "--json"]);
    assert_eq!(chat(&caller, "svc-pro").await.0, 401);
    caller.insert(
        "OPENAI_API_KEY".into(),
        rotated["key"].as_str().unwrap().into(),
    );
    for (action, state, status) in [
        ("disable", "disabled", 401),
        ("enable", "active", 200),
        ("delete", "deleted", 401),
    ] {
        assert_eq!(command(&["key", action, key_id, "--json"])["state"], state);
        assert_eq!(chat(&caller, "svc-pro").await.0, status, "{action}");
    }
    let again = command(&["key", "create", id, "--json"]);
    caller.insert(
        "OPENAI_API_KEY".into(),
        again["key"].as_str().unwrap().into(),
    );
    for (action, status) in [("close", 402), ("reopen", 200)] {
        command(&["account", action, id, "--json"]);
        assert_eq!(chat(&caller, "svc-pro").await.0, status, "{action}");
    }
    for (action, status) in [("disable", 404), ("enable", 200), ("unlist", 200)] {
        command(&["model", action, "svc-pro", "--json"]);
        assert_eq!(chat(&caller, "svc-pro").await.0, status, "{action}");
    }
    assert_eq!(
        command(&["model", "relist", "svc-pro", "--json"])["unlisted"],
        false
    );
    assert_eq!(
        command(&["model", "list", "--json"])["data"]
            .as_array()
            .unwrap()
            .len(),
        17
    );
    let rotated = command(&["secret", "rotate", "--json"]);
    assert_eq!(rotated["name"], "cookies");
}

#[tokio::test]
async fn without_json_the_commands_print_text() {
    let data = TempDir::new().unwrap();
    let (_process, environment) = Process::dev(data.path()).await;
    let (code, created, _) = operator(
        &environment,
        &["account", "create", "--email", "a@example.com"],
    );
    assert_eq!(code, 0);
    assert!(
        !created.contains('{') && created.contains("a@example.com"),
        "{created}"
    );
    let id = created
        .lines()
        .find_map(|line| line.strip_prefix("id "))
        .unwrap()
        .trim();
    let (_, key, _) = operator(&environment, &["key", "create", id]);
    assert!(
        key.contains("sk-svc-") && key.contains("the only time the key is shown"),
        "{key}"
    );
    let arguments = ["route", "Hello", "--model", "svc-hybrid-cost"];
    let (_, route, _) = operator(&environment, &arguments);
    assert!(
        route.contains("COST_OK") && route.contains("ESTIMATED_COST"),
        "{route}"
    );
    let (code, _, refused) = operator(&environment, &["route", "Hello", "--model", "svc-pro"]);
    assert!(code == 1 && refused.contains("not a hybrid"), "{refused}");
    let (_, models, _) = operator(&environment, &["model", "list"]);
    assert!(
        models.lines().next().unwrap().starts_with("ID "),
        "a table: {models}"
    );
    assert_eq!(models.lines().count(), 18);
    let (_, none, _) = operator(&environment, &["credit", "list", id]);
    assert_eq!(none.trim(), "none");
}

#[tokio::test]
async fn a_command_that_fails_says_why_and_exits_with_one() {
    let data = TempDir::new().unwrap();
    let (_process, environment) = Process::dev(data.path()).await;
    let mut stranger = environment.clone();
    stranger.insert(
        "TOLLGATE_OPERATOR_TOKEN".into(),
        "wrong-token-0123456789".into(),
    );
    let mut nowhere = environment.clone();
    nowhere.insert("TOLLGATE_OPERATOR_URL".into(), "http://127.0.0.1:1".into());
    for (environment, arguments, words) in [
        (
            &environment,
            &["account", "show", "acct_nope"][..],
            "there is no account `acct_nope`",
        ),
        (
            &environment,
            &["account", "show", "../models"],
            "there is no account `../models`",
        ),
        (
            &environment,
            &["account", "create", "--email", "x"],
            "`email`",
        ),
        (
            &environment,
            &["model", "disable", "nope"],
            "no model `nope`",
        ),
        (
            &stranger,
            &["account", "list"],
            "operator token is missing or wrong",
        ),
        (
            &nowhere,
            &["account", "list"],
            "no gateway answers at http://127.0.0.1:1",
        ),
    ] {
        let (code, stdout, stderr) = operator(environment, arguments);
        assert_eq!((code, stdout.as_str()), (1, ""), "{arguments:?}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    }
    let without_token = run(&["account", "list"], &[]);
    assert_eq!(without_token.status.code(), Some(1));
    assert!(
        text(&without_token.stderr)
            .contains("name the file with the operator token with --operator-token-file")
    );
}
