//! The cost of metering a call: `cargo bench`.
//!
//! Prints plain measurements: the time of one admission and its settlement, the holds and charges per second, and for
//! the token estimate the time per kilobyte and the ratio to what tokenizers count.

#![expect(clippy::cast_precision_loss, reason = "approximate figures are enough")]

use std::{
    collections::HashMap,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use tempfile::TempDir;
use tollgate::{
    base::{durability::Durability, rate::Ceilings, tokens::estimate_tokens},
    catalog::Catalog,
    ledger::{Ledger, Outcome},
    limits::Limiter,
};

mod support;

/// How long each measurement takes.
const MEASURED_FOR: Duration = Duration::from_secs(2);
/// A text in Chinese, Japanese and Korean.
const CJK: &str = "网关在每次调用之前预留额度，并在供应商报告实际用量之后结算。如果客户端中途断开连接，\
    网关仍会读取到最后的用量信息。ゲートウェイは呼び出しの前に残高を確保し、実際の使用量が報告された後に精算します。\
    게이트웨이는 호출 전에 잔액을 예약합니다.";

fn main() {
    // `cargo test --benches` only checks that it runs.
    let quick = std::env::args().any(|argument| argument == "--test");
    let time = if quick {
        Duration::from_millis(20)
    } else {
        MEASURED_FOR
    };
    limiter(time);
    ledger(time);
    estimate(time);
}

/// Repeats `work` until the time is over, and returns the nanoseconds of one repetition.
fn each(time: Duration, mut work: impl FnMut()) -> f64 {
    let (started, mut times) = (Instant::now(), 0_u32);
    while started.elapsed() < time {
        for _ in 0..100 {
            work();
        }
        times += 100;
    }
    started.elapsed().as_secs_f64() * 1e9 / f64::from(times)
}

fn limiter(time: Duration) {
    println!("limiter: one request admitted and settled");
    let ceilings = Ceilings {
        requests: 1_000,
        tokens: u32::MAX,
    };
    // Each account gets 500 requests in a row, so that windows fill up without reaching the ceiling.
    let accounts: Vec<String> = (0..20_000).map(|n| format!("acct_{n:024}")).collect();
    let folder = TempDir::new().unwrap();
    let journaled = Limiter::resume(&folder.path().join("t.db"), &HashMap::default()).unwrap();
    for (name, limiter) in [
        ("in memory", Limiter::default()),
        ("with a journal", journaled),
    ] {
        let mut call = 0;
        let nanos = each(time, || {
            let account = &accounts[call / 500 % accounts.len()];
            let admitted = limiter.admit(call as u64, account, "svc-standard", 4_100, ceilings);
            let admitted = admitted.now_or_never().expect("memory does not wait");
            let mut admission = admitted.expect("the window has room");
            admission.keep().unwrap();
            admission.settle(black_box(14));
            call += 1;
        });
        println!("  {name:14} {nanos:8.0} ns");
    }
}

fn ledger(time: Duration) {
    println!("ledger: calls held and charged per second, one account");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (name, durability) in [
        ("process", Durability::Process),
        ("power", Durability::Power),
    ] {
        for callers in [1, 8, 64, 256] {
            let folder = TempDir::new().unwrap();
            let ledger = Ledger::open(&folder.path().join("t.db"), durability).unwrap();
            let calls = runtime.block_on(calls_per_second(Arc::new(ledger), callers, time));
            println!("  durable against {name:8} {callers:4} callers {calls:9.0}");
        }
    }
}

async fn calls_per_second(ledger: Arc<Ledger>, callers: usize, time: Duration) -> f64 {
    let customers = support::customer(&ledger, "bench@example.com", 1).await;
    let customer = Arc::new(customers.into_iter().next().unwrap().0);
    let model = Catalog::built_in().find("svc-standard").unwrap().clone();
    let started = Instant::now();
    let callers = (0..callers).map(|_| {
        let (ledger, customer) = (ledger.clone(), customer.clone());
        let model = model.clone();
        tokio::spawn(async move {
            let mut done = 0_u32;
            while started.elapsed() < time {
                let request = support::hold_request(
                    ledger.next_call(),
                    &customer,
                    &model,
                    "req_0123456789abcdefghijklmn",
                );
                let mut held = ledger.hold(request).await.expect("there is credit");
                held.charge(support::USAGE, Outcome::Answered)
                    .await
                    .unwrap();
                done += 1;
            }
            done
        })
    });
    let mut done = 0;
    for caller in callers.collect::<Vec<_>>() {
        done += caller.await.unwrap();
    }
    f64::from(done) / started.elapsed().as_secs_f64()
}

fn estimate(time: Duration) {
    println!("estimate: a kilobyte, and its ratio to what tokenizers count");
    // Random letters, which take longest because they are in no table.
    let letters =
        (0_u32..40_000).map(|n| (b'a' + (n.wrapping_mul(2_654_435_769) >> 24) as u8 % 26) as char);
    let words: Vec<String> = letters
        .collect::<Vec<_>>()
        .chunks(40)
        .map(String::from_iter)
        .collect();
    let random = words.join(" ");
    let o200k = tiktoken_rs::o200k_base().unwrap();
    let cl100k = tiktoken_rs::cl100k_base().unwrap();
    for (name, text) in [
        ("Markdown", include_str!("../docs/ARCHITECTURE.md")),
        ("code", include_str!("../src/wire/stream_normalizer.rs")),
        ("JSON", include_str!("../tests/clients/package-lock.json")),
        ("CJK", CJK),
        ("random", &random),
    ] {
        let nanos = each(time / 4, || {
            black_box(estimate_tokens(black_box(text)));
        });
        let kilobytes = text.len() as f64 / 1024.0;
        let estimated = estimate_tokens(text) as f64;
        let ratio = |counted: usize| estimated / counted as f64;
        println!(
            "  {name:8} {:6.2} µs/KB   o200k {:4.2}   cl100k {:4.2}",
            nanos / 1_000.0 / kilobytes,
            ratio(o200k.encode_ordinary(text).len()),
            ratio(cl100k.encode_ordinary(text).len()),
        );
    }
}
