//! A process that is killed two hundred times on one database, between the redo log and the rows.

use std::{
    collections::{HashMap, HashSet},
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Stdio},
};

use super::*;
use crate::{
    base::{
        durability::Durability,
        money::{NanoUsd, TokenPrice},
    },
    catalog::Prices,
    ledger::{HoldRequest, Key, MAX_KEYS, NewGrant, Seen, tests::new_account},
};

const KILLS: u64 = 200;
/// After how many kills everything is checked.
const CHECK_EVERY: u64 = 40;
const CALLERS: u64 = 4;
/// The child ends by itself after so many calls of each caller: then its failpoint was never reached.
const MOST_CALLS: u32 = 3_000;
/// More than all children spend.
const CREDIT: i64 = 1_000 * DOLLAR;
const GRANT: i64 = 7;

/// Failpoints, and how often each is passed at most: in a charge before and after its commit to the redo log, while
/// rows are being inserted, and after their commit while the memory still has them as unposted.
const POINTS: [(&str, u64); 5] = [
    ("batch_begun", 40),
    ("batch_taken", 40),
    ("batch_committed", 40),
    ("rows_inserted", 4),
    ("rows_committed", 4),
];

/// How long a failpoint waits before it kills: enough for other threads to report what they should not know yet.
const PAUSE_MS: u32 = 5;

/// Environment variables of the child.
const DATABASE: &str = "TOLLGATE_TEST_DATABASE";
const SEED: &str = "TOLLGATE_TEST_SEED";
const CHILD: &str = "ledger::embedded::tests::kills::a_process_that_is_killed";

/// Numbers that are the same in each run (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// What the children have reported, line by line.
#[derive(Default)]
struct Reported {
    /// The cost of each call that was begun.
    begun: HashMap<i64, i64>,
    /// Acknowledged charges.
    charged: HashSet<i64>,
    /// The references of acknowledged grants.
    granted: HashSet<String>,
}

impl Reported {
    fn read(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["begun", id, cost] => {
                let cost = cost.parse().unwrap();
                let before = self.begun.insert(id.parse().unwrap(), cost);
                assert_eq!(before, None, "call {id} was begun before");
            }
            ["charged", id] => {
                self.charged.insert(id.parse().unwrap());
            }
            ["granted", reference] => {
                self.granted.insert(reference.to_owned());
            }
            // What the test runner prints.
            _ => {}
        }
    }
}

/// Every acknowledged charge is a row, once, at its price, and everything adds up, however often the process dies, also
/// while it recovers.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_kills_lose_nothing_and_post_nothing_twice() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = Ledger::open(&path, Durability::Process).unwrap();
    let account_id = ledger.create_account(new_account()).await.unwrap().id;
    ledger
        .create_key(&account_id, "test".into(), MAX_KEYS)
        .await
        .unwrap();
    grant(&ledger, &account_id, CREDIT, None).await;
    drop(ledger);
    let mut reported = Reported::default();
    let mut random = Random(0);
    for kill in 0..KILLS {
        let kinds = POINTS.len() as u64 + 1;
        let point = POINTS.get(usize::try_from(kill % kinds).unwrap());
        let die_at =
            point.map(|(point, most)| format!("{point}:{}:{PAUSE_MS}", 1 + random.below(*most)));
        let charges = random.below(40);
        let killed = format!("kill {kill}, {die_at:?} or after {charges} charges");
        run_child(&path, kill, die_at, charges, &mut reported, &killed);
        if (kill + 1) % CHECK_EVERY == 0 {
            let audit = audit_file(&path).unwrap_or_else(|error| panic!("{killed}: {error}"));
            assert_eq!(audit.violations, [], "{killed}");
            // Posts what is in the redo log.
            drop(Ledger::open(&path, Durability::Process).unwrap());
            check(&path, &reported, &killed);
        }
    }
    let charged = reported.charged.len();
    println!("{charged} charges, {} grants", reported.granted.len());
    assert!(charged > 2_000 && reported.granted.len() > 20, "{charged}");
}

/// Runs a process until it is killed: at a failpoint, or from outside after a number of charges.
fn run_child(
    path: &Path,
    seed: u64,
    die_at: Option<String>,
    charges: u64,
    reported: &mut Reported,
    killed: &str,
) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", CHILD, "--nocapture"]);
    child.env(DATABASE, path).env(SEED, seed.to_string());
    let from_outside = die_at.is_none();
    child.envs(die_at.map(|die_at| ("TOLLGATE_DIE_AT", die_at)));
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut left = charges;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        reported.read(&line);
        if from_outside && line.starts_with("charged") {
            if left == 0 {
                child.kill().unwrap();
            }
            left = left.saturating_sub(1);
        }
    }
    let ended = child.wait_with_output().unwrap();
    let signal = if from_outside { 9 } else { 6 };
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.signal(), Some(signal), "{killed}: {errors}");
}

/// Checks the rows against what was reported, after everything was posted.
fn check(path: &Path, reported: &Reported, killed: &str) {
    let audit = audit_file(path).unwrap_or_else(|error| panic!("{killed}: {error}"));
    assert_eq!(audit.violations, [], "{killed}");
    let file = rusqlite::Connection::open(path).unwrap();
    let left = framed(&unposted_records(&file).unwrap()).count();
    assert_eq!(left, 0, "{killed}: the redo log is posted");
    let mut rows = file
        .prepare("SELECT id, cost_nano_usd, entry_seq FROM calls")
        .unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let (mut missing, mut seqs) = (reported.charged.clone(), HashSet::new());
    let (mut calls, mut charges, mut spent) = (0, 0, 0);
    for row in rows.unwrap() {
        let (id, cost, seq): (i64, Option<i64>, Option<i64>) = row.unwrap();
        calls += 1;
        let begun = reported.begun.get(&id);
        let begun = begun.unwrap_or_else(|| panic!("{killed}: call {id} was never begun"));
        missing.remove(&id);
        assert_eq!(cost.is_some(), seq.is_some(), "{killed}: {id}");
        let Some((cost, seq)) = cost.zip(seq) else {
            assert!(!reported.charged.contains(&id), "{killed}: {id} is free");
            continue;
        };
        assert_eq!(cost, *begun, "{killed}: {id}");
        assert!(seqs.insert(seq), "{killed}: {seq} numbers two charges");
        charges += 1;
        spent += cost;
    }
    assert!(missing.is_empty(), "{killed}: {missing:?} are not there");
    let numbers = |sql: &str| -> Vec<i64> {
        let row = file.query_row(sql, [], |row| {
            (0..row.as_ref().column_count())
                .map(|column| row.get(column))
                .collect()
        });
        row.unwrap()
    };
    let days = "SELECT sum(calls), sum(charged_calls), sum(cost_nano_usd) FROM usage_days";
    assert_eq!(numbers(days), [calls, charges, spent], "{killed}");
    let granted = numbers("SELECT count(*), sum(amount_nano_usd) FROM credit_grants");
    assert_eq!(granted[1], CREDIT + (granted[0] - 1) * GRANT, "{killed}");
    for reference in &reported.granted {
        let count = format!("SELECT count(*) FROM credit_grants WHERE reference = '{reference}'");
        assert_eq!(numbers(&count), [1], "{killed}: {reference}");
    }
    let balance = granted[1] - spent;
    for sum in [
        "SELECT balance_nano_usd FROM balances",
        "SELECT sum(delta_nano_usd) FROM ledger",
        "SELECT balance_after_nano_usd FROM ledger ORDER BY seq DESC LIMIT 1",
    ] {
        assert_eq!(numbers(sum), [balance], "{killed}: {sum}");
    }
}

async fn grant(ledger: &Ledger, account_id: &str, nanos: i64, reference: Option<String>) {
    let grant = NewGrant {
        amount: NanoUsd::new(nanos),
        expires_at: None,
        reason: None,
        reference,
    };
    ledger.add_grant(account_id, grant).await.unwrap();
}

/// The child: several callers who hold, charge, release, grant and read until the process dies. Without its environment
/// variables it is no test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed() {
    let Ok(path) = std::env::var(DATABASE) else {
        return;
    };
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let durability = match seed % 8 {
        0 => Durability::Power,
        _ => Durability::Process,
    };
    report(""); // after what the test runner may have begun to print
    let ledger = Arc::new(Ledger::open(Path::new(&path), durability).unwrap());
    let account_id = ledger.accounts().await.unwrap().remove(0).id;
    let key = ledger.keys(&account_id).await.unwrap().remove(0);
    let callers = (0..CALLERS).map(|caller| {
        let (ledger, random) = (ledger.clone(), Random(seed * CALLERS + caller));
        tokio::spawn(spend(ledger, account_id.clone(), key.clone(), random))
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
}

async fn spend(ledger: Arc<Ledger>, account_id: String, key: Key, mut random: Random) {
    // A nano-dollar a token.
    let prices = Arc::new(Prices::flat(
        TokenPrice::from_picos(1_000),
        TokenPrice::default(),
        TokenPrice::default(),
    ));
    for _ in 0..MOST_CALLS {
        let id = ledger.next_call();
        let cost = i64::try_from(1 + random.below(1_000)).unwrap();
        report(&format!("begun {} {cost}", id.0));
        let request = HoldRequest {
            id,
            seen: Seen::fresh(),
            reservations: &[],
            request_id: "req_test",
            account_id: &account_id,
            payer: &key.payer,
            secret: key.digest,
            model: "svc-standard",
            routed_model: "svc-standard",
            prices: prices.clone(),
            stream: false,
            reserved_tokens: 1,
            amount: NanoUsd::new(cost),
            worst: NanoUsd::new(cost),
            decision: None,
            agent: None,
            idempotency: None,
            overdraft: NanoUsd::new(0),
        };
        let mut held = ledger.hold(request).await.expect("there is credit");
        if random.below(24) == 0 {
            held.release(Outcome::ProviderFailed, None);
        } else {
            let charged = held.charge(tokens(cost), Outcome::Answered).await;
            charged.unwrap();
            report(&format!("charged {}", id.0));
        }
        match random.below(32) {
            // Posts the redo log, in a transaction of its own.
            0 => drop(ledger.usage(&account_id, 0, 0).await.unwrap()),
            // Posts it in the transaction of the grant.
            1 => {
                let reference = format!("ref_{}", id.0);
                grant(&ledger, &account_id, GRANT, Some(reference.clone())).await;
                report(&format!("granted {reference}"));
            }
            _ => {}
        }
    }
}

/// Writes a line that the parent gets even if this process dies next.
fn report(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}
