//! A server whose clock is set while it runs: no fresh minute, and no wait beyond a minute.

use super::*;

const HOUR: i64 = 3_600;

async fn full(server: &Server, ledger: &Ledger) -> Arc<Shared> {
    let limiter = limiter(&server.url(), DEADLINE, ledger).await;
    for call in 1..=60 {
        let mut admission = admit(&limiter, call, 1).await.unwrap();
        ledger.keep(call, &admission);
        admission.settle(1);
    }
    limiter.drain(Duration::from_secs(5)).await;
    limiter
}

/// How long the next request has to wait.
async fn wait(limiter: &Arc<Shared>, call: u64) -> u64 {
    match admit(limiter, call, 1).await {
        Err(NotAdmitted::Refused(refusal)) => refusal.wait_ms.unwrap(),
        Err(NotAdmitted::Unavailable) => panic!("{:?}", limiter.why_not_ready()),
        Ok(_) => panic!("it is the same minute"),
    }
}

/// Nothing is admitted, from the first request on, until the minute is back.
async fn until_put_right(limiter: &Arc<Shared>, jumps: u64) {
    eventually("put right", async || {
        assert!(admit(limiter, 99, 1).await.is_err(), "a fresh minute");
        limiter.clock_jumps().get() == jumps && limiter.is_ready()
    })
    .await;
}

#[tokio::test]
async fn a_clock_that_is_set_hands_out_no_fresh_minute() {
    let server = Server::start_with_clock().await;
    let ledger = Ledger::default();
    let busy = full(&server, &ledger).await;
    let (idle, begun) = (
        limiter(&server.url(), DEADLINE, &ledger).await,
        std::time::Instant::now(),
    );
    for (jumps, hours) in [(1, 1), (2, -1)] {
        server.set_clock(hours * HOUR);
        // With the first request after it, or without one.
        until_put_right(&busy, jumps).await;
        eventually("noticed", async || idle.clock_jumps().get() == jumps).await;
        ready(&idle).await;
        ready(&busy).await;
        for (limiter, call) in [(&busy, 100), (&idle, 200)] {
            let wait = wait(limiter, call).await;
            assert!((30_000..=60_000).contains(&wait), "{hours}: {wait}");
        }
        assert_eq!(left(&busy).await.0, 0, "{hours}");
    }
    assert!(
        begun.elapsed() < Duration::from_secs(25),
        "the waits say so"
    );
}

/// While nobody is connected, too: the history is another one, and so are the times.
#[tokio::test]
async fn a_server_that_comes_back_with_another_time_hands_out_no_fresh_minute() {
    let mut server = Server::start_with_clock().await;
    let ledger = Ledger::default();
    drop(full(&server, &ledger).await);
    server.kill();
    server.set_clock(HOUR);
    server.restart_killed().await;
    let limiter = limiter(&server.url(), DEADLINE, &ledger).await;
    assert!(wait(&limiter, 100).await > 30_000);
}

/// Half of it, so that the rest of the minute is known to be right.
#[tokio::test]
async fn what_is_put_back_by_its_age_leaves_the_window_in_its_time() {
    let server = Server::start_with_clock().await;
    let ledger = Ledger::default();
    let limiter = limiter(&server.url(), DEADLINE, &ledger).await;
    for call in 1..=60 {
        let admission = admit(&limiter, call, 1).await.unwrap();
        ledger.keep(call, &admission);
    }
    // As if the first half had been admitted fifty seconds ago.
    for kept in ledger.kept.lock().unwrap().iter_mut().take(30) {
        kept.age_ms = 50_000;
        kept.at_ms -= 50_000;
    }
    let _: () = server.run("FLUSHALL").await;
    server.set_clock(HOUR);
    until_put_right(&limiter, 1).await;
    let wait = wait(&limiter, 100).await;
    assert!((1..=10_000).contains(&wait), "{wait}");
}
