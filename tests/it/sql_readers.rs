//! `sqlite3` beside a busy gateway: it reads without a failure, and no call is disturbed by what it reads.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use futures_util::future::join_all;

use crate::support::{
    TestGateway,
    gateway::hello,
    process::text,
    sql::{Question, query, questions, sqlite3},
    stores::files_only,
};

const MODEL: &str = "svc-standard";
const CALLERS: usize = 4;
/// The size at which the gateway copies the write-ahead log into the database: 4,000 pages.
const CHECKPOINT_BYTES: u64 = 4_000 * 4_120;

/// A `sqlite3` that a test sends one statement after the other.
struct Session {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Session {
    fn open(folder: &Path) -> Self {
        let mut sqlite = sqlite3(folder);
        let sqlite = sqlite.arg(folder.join("tollgate.db"));
        let sqlite = sqlite.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = sqlite.stderr(Stdio::piped()).spawn().unwrap();
        Self {
            input: process.stdin.take(),
            output: BufReader::new(process.stdout.take().unwrap()),
            process,
        }
    }

    /// Runs statements whose result is one number.
    fn number(&mut self, statements: &str) -> usize {
        writeln!(self.input.as_mut().unwrap(), "{statements}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let number = line.trim_end().parse();
        number.unwrap_or_else(|_| panic!("{statements}: {line}{}", self.end()))
    }

    /// Ends it and returns its errors.
    fn end(&mut self) -> String {
        drop(self.input.take());
        let mut errors = Vec::new();
        let stderr = self.process.stderr.as_mut().unwrap();
        stderr.read_to_end(&mut errors).unwrap();
        self.process.wait().unwrap();
        text(&errors)
    }
}

/// Sets a flag when it is dropped, so that threads end also if the test fails.
struct Finally<'a>(&'a AtomicBool);

impl Drop for Finally<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Sends calls from several callers, each of which must be answered, and returns how long each took, sorted.
async fn call(gateway: &TestGateway, calls: usize, request_id: &str) -> Vec<Duration> {
    let left = AtomicUsize::new(calls);
    let caller = || async {
        let mut took = Vec::new();
        while left
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
            .is_ok()
        {
            let request = gateway.client.post(gateway.url("/v1/chat/completions"));
            let request = request.bearer_auth(&gateway.key).json(&hello(MODEL));
            let started = Instant::now();
            let response = request
                .header("x-request-id", request_id)
                .send()
                .await
                .unwrap();
            assert_eq!(response.status(), 200);
            response.bytes().await.unwrap();
            took.push(started.elapsed());
        }
        took
    };
    let mut took = join_all((0..CALLERS).map(|_| caller())).await.concat();
    took.sort_unstable();
    took
}

fn median_ms(sorted: &[Duration]) -> f64 {
    sorted[sorted.len() / 2].as_secs_f64() * 1e3
}

/// Waits until a query finds this many calls: they are posted within about a second.
async fn until_posted(gateway: &TestGateway, calls: usize) {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let found = query(gateway.data.path(), "SELECT count(*) FROM calls;").rows;
        if found == [[calls.to_string()]] {
            return;
        }
        assert!(Instant::now() < deadline, "{found:?} of {calls} calls");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Queries of all kinds, on connections that are opened and closed and on one that stays open, while calls go on.
#[tokio::test(flavor = "multi_thread")]
async fn queries_beside_a_busy_gateway_do_not_fail() {
    const CALLS: usize = 300;
    if files_only("PostgreSQL has other readers all the time") {
        return;
    }
    let gateway = TestGateway::start().await;
    call(&gateway, CALLS / 10, "warm").await;
    let alone = call(&gateway, CALLS, "alone").await;
    let (done, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let folder = gateway.data.path();
    let queries: String = questions().iter().map(Question::query).collect();
    let (beside, read) = std::thread::scope(|scope| {
        let shell = scope.spawn(|| {
            while !done.load(Relaxed) {
                query(folder, &queries);
                asked.fetch_add(1, Relaxed);
            }
        });
        let reader = scope.spawn(|| {
            let (mut session, mut before, mut times) = (Session::open(folder), 0, 0);
            while !done.load(Relaxed) {
                let posted = session.number("SELECT count(*) FROM ledger;");
                assert!(before <= posted, "{posted} entries after {before}");
                (before, times) = (posted, times + 1);
            }
            assert_eq!(session.end(), "");
            times
        });
        let end = Finally(&done);
        let runtime = tokio::runtime::Handle::current();
        let beside = tokio::task::block_in_place(|| {
            let mut beside = runtime.block_on(call(&gateway, CALLS, "beside"));
            // Until each query of the document was asked a few times.
            while asked.load(Relaxed) < 3 && !shell.is_finished() {
                beside.extend(runtime.block_on(call(&gateway, CALLERS, "beside")));
            }
            beside
        });
        drop(end);
        (beside, reader.join().unwrap())
    });
    until_posted(&gateway, CALLS / 10 + CALLS + beside.len()).await;
    println!(
        "{read} and {} times {} queries beside {} calls; median of a call {:.2} ms, without readers {:.2} ms",
        asked.into_inner(),
        questions().len(),
        beside.len(),
        median_ms(&beside),
        median_ms(&alone),
    );
}

/// How often the write-ahead log was restarted, which follows a complete checkpoint.
fn restarts(log: &Path) -> u32 {
    let mut header = [0; 16];
    let mut file = std::fs::File::open(log).unwrap();
    file.read_exact(&mut header).unwrap();
    u32::from_be_bytes(header[12..].try_into().unwrap())
}

/// Writes as much to the write-ahead log as thousands of calls do.
fn fill_log(folder: &Path) {
    let stranger = rusqlite::Connection::open(folder.join("tollgate.db")).unwrap();
    stranger.busy_timeout(Duration::from_mins(1)).unwrap();
    let fill = format!(
        "PRAGMA wal_autocheckpoint = 0;
         CREATE TABLE filler (bytes BLOB);
         INSERT INTO filler VALUES (zeroblob({CHECKPOINT_BYTES}));"
    );
    stranger.execute_batch(&fill).unwrap();
}

/// A reader that keeps a snapshot open keeps the write-ahead log from being restarted. Calls go on, and so does the log
/// once the reader is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_stays_open_disturbs_no_call() {
    const CALLS: usize = 200;
    if files_only("PostgreSQL has no such file") {
        return;
    }
    let gateway = TestGateway::start().await;
    let log = gateway.data.path().join("tollgate.db-wal");
    let size = || log.metadata().unwrap().len();
    call(&gateway, CALLS, "before").await;
    until_posted(&gateway, CALLS).await;
    let mut session = Session::open(gateway.data.path());
    let seen = session.number("BEGIN; SELECT count(*) FROM calls;");
    let (before, began_with) = (restarts(&log), size());
    fill_log(gateway.data.path());
    // Each of these commits finds the log long enough to be copied and restarted, and cannot restart it.
    let beside = call(&gateway, CALLS, "beside").await;
    until_posted(&gateway, 2 * CALLS).await;
    let largest = size();
    assert!(largest > began_with + CHECKPOINT_BYTES, "{largest} bytes");
    assert_eq!(restarts(&log), before, "its snapshot is in the log");
    assert_eq!(session.number("SELECT count(*) FROM calls;"), seen);
    assert_eq!(session.end(), "");
    let mut after = Vec::new();
    while restarts(&log) == before {
        after.extend(call(&gateway, CALLERS, "after").await);
        assert!(after.len() < 2_000, "the log was not restarted");
    }
    assert!(size() <= largest * 5 / 4, "the log grows on: {}", size());
    until_posted(&gateway, 2 * CALLS + after.len()).await;
    println!(
        "median of a call beside the snapshot {:.2} ms; the log was restarted after {} calls without it",
        median_ms(&beside),
        after.len()
    );
}
