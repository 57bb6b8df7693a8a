//! `tollgate check`: the configuration, the store and the providers, without changing any of them.

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    FakeUpstream,
    gateway::OPERATOR_TOKEN,
    market::{FakeMarket, Fault},
    process::{Process, run, text},
    stores::{self, files_only},
};

fn check(config: &Path) -> (i32, String, String) {
    let arguments = ["check", "--config", config.to_str().unwrap()];
    let output = run(
        &arguments,
        &[(
            "TOLLGATE_OPERATOR_TOKEN",
            "7c1f9a04e6b25d83d0487ae1936bf25c",
        )],
    );
    let code = output.status.code().unwrap();
    (code, text(&output.stdout), text(&output.stderr))
}

/// Whatever would make a start fail, a check reports.
#[test]
fn check_reads_the_store() {
    if files_only("what is wrong with the store is wrong with a file here") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("tollgate.db");
    let config = folder.path().join("tollgate.toml");
    let text = format!(
        "store.url = \"sqlite:{}\"\nproviders.play.kind = \"simulator\"\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n",
        store.display()
    );
    std::fs::write(&config, text).unwrap();
    let database = rusqlite::Connection::open(&store).unwrap();
    database.pragma_update(None, "user_version", 99).unwrap();
    drop(database);
    let (code, stdout, _) = check(&config);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("another version of tollgate"), "{stdout}");

    std::fs::write(
        &store,
        b"this is no database, whatever its name says".repeat(100),
    )
    .unwrap();
    let (code, stdout, _) = check(&config);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("cannot be used"), "{stdout}");
}

/// A gateway whose operator token can be guessed does not start, and a check says so.
#[test]
fn check_and_serve_refuse_an_operator_token_that_can_be_guessed() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("tollgate.toml");
    let text_of_config = format!(
        "{}providers.play.kind = \"simulator\"\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n",
        stores::lines(folder.path())
    );
    std::fs::write(&config, text_of_config).unwrap();
    let token = [("TOLLGATE_OPERATOR_TOKEN", "changeme-changeme-changeme")];
    for command in ["check", "serve"] {
        let output = run(&[command, "--config", config.to_str().unwrap()], &token);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        assert!(said.contains("openssl rand -hex 32"), "{said}");
        assert!(!said.contains("changeme"), "{said}");
    }
}

/// The most common mistake in a `base_url` is a missing path.
#[tokio::test]
async fn check_lists_the_providers_models() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("tollgate.toml");
    let upstream = FakeUpstream::start().await;
    let text = format!(
        "{}\
         deployments = [{{ model = \"*\", provider = \"far\" }}]\n\
         [providers.far]\nkind = \"openai\"\nbase_url = \"http://{}\"\n",
        stores::lines(folder.path()),
        upstream.address
    );
    std::fs::write(&config, text).unwrap();
    for (status, code, words) in [
        (200, 0, "ok    provider `far`: answers"),
        (401, 1, "wrong provider `far`: refuses our key"),
        (404, 1, "is `base_url` right?"),
        (503, 1, "fails with status 503"),
    ] {
        upstream.answer_json(status, &json!({ "data": [] }));
        let config = config.clone();
        let checked = tokio::task::spawn_blocking(move || check(&config)).await;
        let (found, stdout, _) = checked.unwrap();
        assert_eq!(found, code, "{status}: {stdout}");
        assert!(stdout.contains(words), "{status}: {stdout}");
    }
}

#[test]
fn check_shows_aliases() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("tollgate.toml");
    let text = format!(
        "{}providers.play.kind = \"simulator\"\n\
         deployments = [{{ model = \"svc-pro\", provider = \"play\" }}]\n\
         models.aliases = {{ \"claude-*\" = \"svc-pro\", o3 = \"svc-basic\", svc-basic = \"svc-pro\" }}\n",
        stores::lines(folder.path())
    );
    std::fs::write(&config, text).unwrap();
    let (code, stdout, _) = check(&config);
    assert_eq!(code, 0, "{stdout}");
    for line in [
        "ok    alias `claude-*`: `svc-pro`\n",
        "ok    alias `o3`: `svc-basic`, which has no deployment: requests get 404\n",
        "ok    alias `svc-basic`: never applies, because a model of the catalog has this ID\n",
    ] {
        assert!(stdout.contains(line), "{stdout}");
    }
}

#[test]
fn check_distinguishes_good_from_bad_configurations() {
    if files_only("it looks whether a check made the database's file") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("tollgate.toml");
    let store = folder.path().join("store/tollgate.db");
    let good = format!(
        "store.url = \"sqlite:{}\"\nproviders.play.kind = \"simulator\"\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n",
        store.display()
    );
    std::fs::write(&config, &good).unwrap();
    let (code, stdout, stderr) = check(&config);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    for word in [
        "ok    store: ",
        "ok    responses: ",
        "ok    portal: ",
        "ok    spool: ",
        "ok    provider `play`",
    ] {
        assert!(stdout.contains(word), "{stdout}");
    }
    assert!(
        !store.exists() && !store.parent().unwrap().exists(),
        "a check changes nothing"
    );

    let spool = format!("store.spool = \"{}\"\n{good}", config.display());
    std::fs::write(&config, spool).unwrap();
    let (code, stdout, _) = check(&config);
    let word = format!("wrong spool: {} cannot be written", config.display());
    assert!(code == 1 && stdout.contains(&word), "{stdout}");

    std::fs::write(
        &config,
        good.replace("simulator", "telepathy")
            .replace("\"*\"", "\"nope\""),
    )
    .unwrap();
    let (code, stdout, stderr) = check(&config);
    assert_eq!(code, 1);
    for setting in ["`providers.play.kind`", "`deployments[0].model`"] {
        let found = stdout.lines().find(|line| line.contains(setting));
        assert!(found.expect(&stdout).starts_with("wrong "), "{stdout}");
    }
    assert!(stderr.contains("things are wrong"), "{stderr}");

    let dead = "{ kind = \"openai\", base_url = \"http://127.0.0.1:1/v1\" }";
    std::fs::write(
        &config,
        good.replace(".kind = \"simulator\"", &format!(" = {dead}")),
    )
    .unwrap();
    let (code, stdout, stderr) = check(&config);
    assert_eq!(
        code, 1,
        "a provider that does not answer is wrong: {stdout}"
    );
    assert!(stdout.contains("wrong provider `play`"), "{stdout}");
    assert!(stderr.contains("one thing is wrong"), "{stderr}");

    let (code, stdout, _) = check(&folder.path().join("nowhere.toml"));
    assert_eq!(code, 1);
    assert!(stdout.contains("nowhere.toml"), "{stdout}");
}

/// The data sources of the tools are checked too, without printing their addresses.
#[tokio::test]
async fn check_queries_the_tools_data_sources() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("tollgate.toml");
    let (market, node) = (FakeMarket::start().await, FakeUpstream::start().await);
    let text = format!(
        "{}providers.play.kind = \"simulator\"\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n\
         [tools.market]\nbase_url = \"http://{}/api/v3\"\n\
         [tools.chains.local]\nrpc_url = \"http://{}/secret-key\"\n",
        stores::lines(folder.path()),
        market.address,
        node.address,
    );
    std::fs::write(&config, text).unwrap();
    let chain = json!({ "jsonrpc": "2.0", "id": 1, "result": "0x7a69" });
    let refusal = json!({ "jsonrpc": "2.0", "id": 1,
        "error": { "code": -32_601, "message": "no secret-key" } });
    for (fault, answer, code, words) in [
        (
            None,
            (200, &chain),
            0,
            [
                "ok    market data: answers",
                "ok    chain `local`: answers, and is chain 31337",
            ],
        ),
        (
            Some(Fault::Status(404)),
            (401, &chain),
            1,
            [
                "wrong market data: has no /ping (status 404): is `base_url` right?",
                "wrong chain `local`: refuses our key (status 401)",
            ],
        ),
        (
            Some(Fault::Status(403)),
            (200, &refusal),
            1,
            [
                "wrong market data: refuses our key (status 403)",
                "wrong chain `local`: refuses the call (code -32601)",
            ],
        ),
    ] {
        market.break_with(fault);
        node.answer_json(answer.0, answer.1);
        let config = config.clone();
        let checked = tokio::task::spawn_blocking(move || check(&config)).await;
        let (found, stdout, stderr) = checked.unwrap();
        assert_eq!(found, code, "{stdout}");
        for words in words {
            assert!(stdout.contains(words), "{stdout}");
        }
        assert!(
            !format!("{stdout}{stderr}").contains("secret-key"),
            "{stdout}{stderr}"
        );
        let request = &node.received()[0];
        assert!(
            request.head.starts_with("POST /secret-key "),
            "{}",
            request.head
        );
        assert_eq!(request.body["method"], "eth_chainId");
    }
}

#[test]
fn check_says_that_a_database_cannot_be_asked_for_the_changes_of_the_console() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("tollgate.toml");
    let nobody = "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n\
                  store.url = \"postgres://tollgate@127.0.0.1:1/tollgate\"\n\
                  limits.url = \"redis://127.0.0.1:1/\"\nproviders.play.kind = \"simulator\"\n\
                  deployments = [{ model = \"*\", provider = \"play\" }]\n";
    std::fs::write(&config, nobody).unwrap();
    let (code, stdout, _) = check(&config);
    assert_eq!(code, 1, "{stdout}");
    for wrong in ["changes of the console: cannot be read: ", "store: "] {
        assert!(stdout.contains(&format!("wrong {wrong}")), "{stdout}");
    }
}

/// Changes of the console have prices, so a gateway that cannot read them starts only if its operator says so, and a check
/// says so before that.
#[tokio::test]
async fn serve_needs_the_changes_of_the_console() {
    if files_only("it damages the portal's file") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("tollgate.toml");
    let text_of_config = format!(
        "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n{}\
         providers.play.kind = \"simulator\"\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n",
        stores::lines(folder.path())
    );
    std::fs::write(&config, text_of_config).unwrap();
    let damaged = folder.path().join("tollgate.portal.db");
    std::fs::write(damaged, "garbage".repeat(999)).unwrap();
    let token = [("TOLLGATE_OPERATOR_TOKEN", OPERATOR_TOKEN)];
    let (code, stdout, _) = check(&config);
    let said = "wrong changes of the console: cannot be read: ";
    assert!(code == 1 && stdout.contains(said), "{stdout}");
    let serve = ["serve", "--config", config.to_str().unwrap()];
    let refused = Process::start(&serve, &token).ended().await;
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("--without-console-changes"),
        "{}",
        refused.stderr
    );
    let decided = [&serve[..], &["--without-console-changes"]].concat();
    let mut served = Process::start(&decided, &token);
    served
        .until(|process| process.stderr().contains("is ready at"))
        .await;
    let ended = served.terminated().await;
    assert!(
        ended.stderr.contains("served without them"),
        "{}",
        ended.stderr
    );
}
