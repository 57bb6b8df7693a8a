//! The real binary with a store that refuses writes: delivered responses are charged exactly once, by whichever
//! process runs next.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use tempfile::TempDir;

use crate::{
    process_stop_money::{MODEL, STREAMS, begun, read, slow_upstream},
    support::{
        FakeUpstream, Gate, PostgresServer, Serving,
        gateway::until,
        process::{run, text},
        stores,
    },
};

/// 100 × 4,600 nano-dollars.
const CHARGED: (&str, usize) = ("99.999540", STREAMS);
const SPOOLED: &str = "tollgate_spooled_charges";

/// A store of one gateway that can be made unavailable: by a lock on the file, or by killing the server.
struct Store {
    folder: PathBuf,
    server: Option<Arc<PostgresServer>>,
    lock: Option<rusqlite::Connection>,
}

impl Store {
    /// Starts a gateway on it.
    async fn with_gateway(
        upstream: &FakeUpstream,
        environment: &[(&str, &str)],
    ) -> (Self, Serving) {
        let folder = TempDir::new().unwrap();
        let mut server = None;
        if stores::are_shared() {
            let own = aside(|| Arc::new(PostgresServer::own())).await;
            stores::remember(folder.path(), &own.database());
            server = Some(own);
        }
        let store = Self {
            folder: folder.path().to_owned(),
            server,
            lock: None,
        };
        let provider = format!(
            "kind = \"openai\"\nbase_url = \"http://{}/v1\"",
            upstream.address
        );
        let serving = Serving::start_in(folder, 1, &provider, environment).await;
        (store, serving)
    }

    async fn take_away(&mut self) {
        if let Some(server) = self.server.clone() {
            return aside(move || server.kill()).await;
        }
        let lock = rusqlite::Connection::open(self.folder.join("tollgate.db")).unwrap();
        lock.execute_batch("BEGIN IMMEDIATE").unwrap();
        self.lock = Some(lock);
    }

    async fn give_back(&mut self) {
        self.lock = None;
        if let Some(server) = self.server.clone() {
            aside(move || server.start()).await;
        }
    }

    fn spool(&self) -> PathBuf {
        self.folder.join("spool/charges-1.spool")
    }
}

async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// A hundred streams that were delivered while the store was unavailable, confirmed by each client.
async fn delivered() -> (Store, Serving) {
    let (upstream, gate) = slow_upstream().await;
    let (mut store, serving) = Store::with_gateway(&upstream, &[]).await;
    deliver(&mut store, &serving, &gate).await;
    assert_eq!(serving.metric(SPOOLED).await, STREAMS.to_string());
    (store, serving)
}

async fn deliver(store: &mut Store, serving: &Serving, gate: &Gate) {
    let streams = begun(serving).await;
    store.take_away().await;
    gate.open();
    for stream in read(streams).await {
        stream.assert_complete(MODEL);
        assert_eq!(stream.content(0), "word word ");
    }
}

/// Asserts that the charges are in the ledger, and no longer pending.
async fn assert_settled(serving: &Serving, spool: &Path) {
    let (balance, charges) = serving.ledger_view().await;
    assert_eq!((balance.as_str(), charges), CHARGED);
    assert_eq!(serving.metric(SPOOLED).await, "0");
    // The spool counts what waits before it empties the file.
    until("the file is empty", || lines(spool) == 0).await;
    stores::assert_sound(serving.folder());
}

/// Number of lines of a file that are not empty.
fn lines(spool: &Path) -> usize {
    let text = fs::read_to_string(spool).unwrap();
    text.lines().filter(|line| !line.is_empty()).count()
}

/// Pending charges are not in the ledger, so an import would lose them.
fn assert_not_imported(folder: &Path) {
    let from = format!("sqlite:{}", folder.join("tollgate.db").display());
    let to = "postgres://tollgate@localhost/unused";
    let refused = run(&["import", "--from", &from, "--to", to], &[]);
    assert_eq!(refused.status.code(), Some(1));
    let told = format!(
        "tollgate: 100 charges wait in the spool {}: start the gateway on its file once more, which settles them, and \
         stop it\n",
        folder.join("spool").display()
    );
    assert_eq!(text(&refused.stderr), told);
}

#[tokio::test(flavor = "multi_thread")]
async fn delivered_streams_are_charged_after_a_stop_whose_exit_status_reports_them() {
    let (mut store, serving) = delivered().await;
    serving.process.signal("TERM");
    let file = store.spool();
    let meanwhile = async {
        store.give_back().await;
        if !stores::are_shared() {
            assert_not_imported(&store.folder);
        }
    };
    let (ended, serving) = serving.ended_and_restarted_after(meanwhile, &[]).await;
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let told = format!(
        "tollgate: 100 charges wait in {} (0.000460 USD): the store could not be written. \
         Keep the file; the next start settles what is in it\n",
        file.display()
    );
    assert!(ended.stderr.ends_with(&told), "{}", ended.stderr);
    let log = serving.process.stderr();
    assert!(
        log.contains("settled charges that an earlier process left"),
        "{log}"
    );
    assert_settled(&serving, &file).await;
    let ended = serving.process.terminated().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

/// The process is killed, and its spool is moved to another gateway on the same store.
#[tokio::test(flavor = "multi_thread")]
async fn delivered_streams_are_charged_after_a_kill_by_the_gateway_that_gets_the_spool() {
    let (mut store, serving) = delivered().await;
    serving.process.signal("KILL");
    let (from, given) = (store.spool(), store.folder.join("given"));
    let to = given.join("from-elsewhere.spool");
    let meanwhile = async {
        store.give_back().await;
        fs::create_dir(&given).unwrap();
        fs::rename(&from, &to).unwrap();
    };
    let environment = [("TOLLGATE__STORE__SPOOL", given.to_str().unwrap())];
    let (ended, serving) = serving
        .ended_and_restarted_after(meanwhile, &environment)
        .await;
    assert_eq!(ended.code, None);
    assert_settled(&serving, &to).await;
}

/// The store returns, the process settles its charges itself, and then an old copy of its spool, cut off in the
/// middle of a line, is replayed.
#[tokio::test(flavor = "multi_thread")]
async fn a_charge_made_directly_and_from_the_spool_is_made_once() {
    let (mut store, serving) = delivered().await;
    let copy = fs::read_to_string(store.spool()).unwrap();
    assert_eq!(lines(&store.spool()), STREAMS);
    store.give_back().await;
    serving.until_metric(SPOOLED, "0").await;
    serving.process.signal("TERM");
    let file = store.spool();
    let meanwhile = async {
        let copy = copy.trim_end();
        fs::write(&file, &copy[..copy.len() - 9]).unwrap();
    };
    let (ended, serving) = serving.ended_and_restarted_after(meanwhile, &[]).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let log = serving.process.stderr();
    assert!(
        log.contains("the last charge in the spool is incomplete"),
        "{log}"
    );
    assert!(log.contains("\"settled_before\":99"), "{log}");
    assert_settled(&serving, &file).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_can_be_neither_charged_nor_spooled_is_interrupted_and_free() {
    let (upstream, gate) = slow_upstream().await;
    let nowhere = [("TOLLGATE__STORE__SPOOL", "/dev/null/spool")];
    let (mut store, serving) = Store::with_gateway(&upstream, &nowhere).await;
    let log = serving.process.stderr();
    assert!(log.contains("/dev/null/spool cannot be written"), "{log}");
    let streams = begun(&serving).await;
    store.take_away().await;
    gate.open();
    for stream in read(streams).await {
        assert!(!stream.is_done(), "{}", stream.text);
        let error = stream.error().unwrap();
        assert_eq!(error["code"], "credit_reservation_unavailable", "{error}");
        assert_eq!(stream.content(0), "word word ");
    }
    assert_eq!(serving.metric(SPOOLED).await, "0");
    store.give_back().await;
    serving.until_metric("tollgate_ledger_ready", "1").await;
    serving.process.signal("TERM");
    let (ended, serving) = serving.ended_and_restarted_after(async {}, &[]).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(serving.ledger_view().await, ("100.000000".to_owned(), 0));
    stores::assert_sound(serving.folder());
}
