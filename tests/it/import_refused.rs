//! `tollgate import` refuses sources and targets that are in use, or that are not those it began with.

use std::path::Path;

use tempfile::TempDir;

use crate::support::{
    PostgresServer, Process, TestGateway,
    gateway::hello,
    imports::{import, import_with},
    process::{run, text},
    stores::{self, files_only},
};

/// The files of a gateway after one call.
async fn stopped() -> TempDir {
    let gateway = TestGateway::start().await;
    gateway.chat(&hello("svc-standard")).await.assert_ok();
    gateway.stop().await
}

/// A database with an import that ended after its first batch.
fn begun(folder: &Path) -> String {
    let database = PostgresServer::shared().database();
    let die = [("TOLLGATE_DIE_AT", "import_committed:1")];
    let killed = import_with(folder, &database, &["--batch", "1"], &die);
    assert_eq!(killed.code, None, "{}", killed.stderr);
    database
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_must_exist_and_be_stopped() {
    if files_only("it imports files") {
        return;
    }
    let database = PostgresServer::shared().database();
    let empty = TempDir::new().unwrap();
    import(empty.path(), &database).assert_refused("tollgate.db does not exist");
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0);
    let (process, _) = Process::dev(empty.path()).await;
    let refused = import(empty.path(), &database);
    refused.assert_refused("tollgate.db is in use; stop its gateway first");
    assert_eq!(process.terminated().await.code, Some(0));
    import(empty.path(), &database).assert_ok();
    let no_file = run(
        &["import", "--from", "data/tollgate.db", "--to", &database],
        &[],
    );
    assert!(text(&no_file.stderr).contains("`--from` must be `sqlite:`"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_does_not_add_up_is_not_imported() {
    if files_only("it imports files") {
        return;
    }
    let folder = stopped().await;
    let wrong = "UPDATE ledger_entries SET delta_nano_usd = delta_nano_usd + 1";
    stores::execute(folder.path(), wrong).await;
    let refused = import(folder.path(), &PostgresServer::shared().database());
    refused.assert_refused("the ledger does not add up, so it is not imported");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_must_be_empty() {
    if files_only("it imports files") {
        return;
    }
    let folder = stopped().await;
    let database = PostgresServer::shared().database();
    let other = TempDir::new().unwrap();
    std::fs::copy(
        folder.path().join("tollgate.db"),
        other.path().join("tollgate.db"),
    )
    .unwrap();
    let running = TestGateway::start_on_servers(folder, &database, "").await;
    let refused = import(other.path(), &database);
    refused.assert_refused("accounts has rows: gateways use or have used this database");
    let folder = running.stop().await;
    import(folder.path(), &database).assert_refused("accounts has rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_import_continues_from_the_same_files_alone() {
    if files_only("it imports files") {
        return;
    }
    let folder = stopped().await;
    let database = begun(folder.path());
    let config = folder.path().join("tollgate.toml");
    let servers = format!(
        "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\nstore.url = \"{database}\"\n\
         limits.url = \"redis://127.0.0.1:1/\"\nproviders.play.kind = \"simulator\"\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n"
    );
    std::fs::write(&config, servers).unwrap();
    let token = [(
        "TOLLGATE_OPERATOR_TOKEN",
        "7c1f9a04e6b25d83d0487ae1936bf25c",
    )];
    let config = config.to_str().unwrap();
    for command in ["serve", "check"] {
        let refused = run(&[command, "--config", config], &token);
        assert_eq!(refused.status.code(), Some(1), "{command}");
        let said = text(&refused.stdout) + &text(&refused.stderr);
        let words = "is not finished; finish it with the same `tollgate import` command";
        assert!(said.contains(words), "{command}: {said}");
    }

    let other = stopped().await;
    let words = "began with other files, or a gateway has changed the files since";
    import(other.path(), &database).assert_refused(words);

    // The same files at another place.
    let moved = TempDir::new().unwrap();
    for file in ["tollgate.db", "tollgate.portal.db", "tollgate.responses.db"] {
        let from = folder.path().join(file);
        if from.exists() {
            std::fs::copy(from, moved.path().join(file)).unwrap();
        }
    }
    let continued = import(moved.path(), &database);
    continued.assert_ok();
    let words = "continuing an import; rows copied before: 1\n";
    assert!(continued.stderr.contains(words), "{}", continued.stderr);
    import(moved.path(), &database).assert_refused("was finished before");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_a_gateway_has_changed_since_are_refused() {
    if files_only("it imports files") {
        return;
    }
    let folder = stopped().await;
    let database = begun(folder.path());
    let gateway = TestGateway::start_in(folder, "").await;
    let folder = gateway.stop().await;
    import(folder.path(), &database).assert_refused("a gateway has changed the files since");
}

/// What only a fault could cause is found by the comparison, and no gateway starts on the database.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_differs_is_not_finished() {
    if files_only("it imports files") {
        return;
    }
    let folder = stopped().await;
    let database = begun(folder.path());
    let client = stores::connect(&database).await;
    let change = "UPDATE accounts SET debt_nano_usd = 1";
    client.batch_execute(change).await.unwrap();
    let refused = import(folder.path(), &database);
    refused.assert_refused("differs, so gateways do not start on it");
    for found in [
        "accounts.debt_nano_usd adds up to 0, and its copy to 1",
        "has the balance",
    ] {
        assert!(refused.stderr.contains(found), "{}", refused.stderr);
    }
    let finished = client
        .query_one("SELECT finished_at FROM imports", &[])
        .await;
    assert_eq!(finished.unwrap().get::<_, Option<i64>>(0), None);
}
