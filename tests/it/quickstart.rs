//! The commands of docs/QUICKSTART.md, and those of the README for operators, as they are written there, in an empty folder.
//! Only the ports are others, because those of the page may be in use here.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::support::{FakeUpstream, stores::files_only};

const PAGE: &str = include_str!("../../docs/QUICKSTART.md");
const README: &str = include_str!("../../README.md");

/// The blocks of a language, in their order.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    let blocks = page.split(begin.as_str()).skip(1);
    blocks
        .map(|block| block.split("\n```").next().unwrap())
        .collect()
}

/// The commands of a page, in their order. What builds the program is left out: it is built.
fn commands(page: &str) -> String {
    let lines = blocks(page, "console").into_iter().flat_map(str::lines);
    let commands = lines.map(|line| line.strip_prefix("$ ").unwrap_or(line));
    let commands = commands.filter(|line| !line.starts_with("cargo "));
    commands.collect::<Vec<_>>().join("\n")
}

/// The section of the README for operators.
fn for_operators() -> &'static str {
    let (_, section) = README.split_once("\n## For operators\n").unwrap();
    section.split("\n## ").next().unwrap()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Runs a shell script in this folder; returns whether it succeeded, and its output. What it starts ends with it.
fn shell(folder: &Path, script: &str) -> (bool, String, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("timeout");
    let bash = bash
        .args(["60", "bash", "-euc", script])
        .current_dir(folder);
    let bash = bash.env_remove("TOLLGATE_OPERATOR_TOKEN").env("PATH", path);
    let output = bash.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.success(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Runs the commands of a page in an empty folder, beside a provider with the page's model. Returns what they printed, what
/// the provider got last, and the folder.
async fn run_page(page: &str) -> (String, Option<Value>, TempDir) {
    let folder = TempDir::new().unwrap();
    let ollama = FakeUpstream::start().await;
    ollama.answer_json(
        200,
        &json!({
            "object": "list", "data": [{ "id": "llama3.2", "object": "model" }],
            "id": "chatcmpl-1", "created": 1, "model": "llama3.2",
            "choices": [{ "index": 0, "finish_reason": "stop",
                "message": { "role": "assistant", "content": "Hello Ada." } }],
            "usage": { "prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150 },
        }),
    );
    let ports = [("8080", free_port()), ("9090", free_port())];
    let mut script = commands(page);
    for (written, free) in &ports {
        script = script.replace(
            &format!("127.0.0.1:{written}"),
            &format!("127.0.0.1:{free}"),
        );
    }
    // Between starting the gateway and the next command a person takes longer than it does.
    let ready = format!(
        "for try in $(seq 300); do curl -sf http://127.0.0.1:{}/health/live >/dev/null && break; sleep 0.1; done",
        ports[0].1
    );
    let started = script.replace(
        "tollgate.toml &\n",
        &format!("tollgate.toml 2>log &\n{ready}\n"),
    );
    assert_ne!(started, script, "the page starts a gateway");
    let script = format!(
        "trap 'kill $(jobs -p); wait' EXIT\n\
         export TOLLGATE__SERVER__LISTEN=127.0.0.1:{} TOLLGATE__OPERATOR__LISTEN=127.0.0.1:{}\n\
         export TOLLGATE_OPERATOR_URL=http://127.0.0.1:{}\n\
         export TOLLGATE__PROVIDERS__OLLAMA__BASE_URL=http://{}/v1\n{started}",
        ports[0].1, ports[1].1, ports[1].1, ollama.address,
    );
    let path = PathBuf::from(folder.path());
    let ran = spawn_blocking(move || shell(&path, &script)).await;
    let (ok, stdout, stderr) = ran.unwrap();
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    assert!(ok, "{stdout}\n{stderr}\n{log}");
    let sent = ollama.received().last().map(|request| request.body.clone());
    (stdout, sent, folder)
}

fn assert_has(text: &str, all: &[&str]) {
    for words in all {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// The model that the page shows is in the file as it is shown.
fn assert_written(page: &str, folder: &TempDir) {
    let written = std::fs::read_to_string(folder.path().join("tollgate.toml")).unwrap();
    let written: toml::Table = written.parse().unwrap();
    let shown = blocks(page, "toml");
    assert_eq!(shown.len(), 1);
    let shown: toml::Table = shown[0].parse().unwrap();
    assert_eq!(written["models"], shown["models"]);
}

#[tokio::test]
async fn the_page_works_as_it_is_written() {
    if files_only("the page is about a gateway with files") {
        return;
    }
    let (stdout, sent, folder) = run_page(PAGE).await;
    assert_has(
        &stdout,
        &[
            "tollgate.toml serves llama3.2",
            "provider `ollama`: answers",
            "Hello Ada.",
            // 100 × 0.10 and 50 × 0.40 dollars a million.
            "9.99997",
            "Everything adds up.",
            "/portal/",
        ],
    );
    assert_written(PAGE, &folder);
    let sent = sent.unwrap();
    assert_eq!(
        sent["messages"].as_array().unwrap().len(),
        1,
        "no prompt of ours: {sent}"
    );
    assert!(sent.get("tools").is_none(), "no tools of ours: {sent}");
}

#[tokio::test]
async fn the_readme_works_for_operators_as_it_is_written() {
    if files_only("the page is about a gateway with files") {
        return;
    }
    let (stdout, _, folder) = run_page(for_operators()).await;
    assert_has(
        &stdout,
        &[
            "tollgate.toml serves llama3.2",
            "provider `ollama`: answers",
            "/portal/",
            "backups/monday.db",
        ],
    );
    assert_written(for_operators(), &folder);
    let file = |name: &str| folder.path().join(name);
    assert!(file("backups/monday.db").is_file() && file("backups/monday.portal.db").is_file());
    let exported = std::fs::read_to_string(file("november.csv")).unwrap();
    assert!(exported.starts_with("account_id,day,"), "{exported}");
}
