//! A server whose clock jumps: the windows are not emptied, and no request has to wait for more than 60 seconds.

use super::*;

const HOUR: i64 = 3_600;

/// A limiter whose window is full.
async fn full(server: &Server, ledger: &Ledger) -> Arc<Shared> {
    let limiter = limiter(&server.url(), DEADLINE, ledger).await;
    for call in 1..=60 {
        let mut admission = admit(&limiter, call, 1).await.unwrap();
        ledger.store(call, &admission);
        admission.settle(1);
    }
    limiter.drain(Duration::from_secs(5)).await;
    limiter
}

/// How many milliseconds the next request has to wait.
async fn wait(limiter: &Arc<Shared>, call: u64) -> u64 {
    match admit(limiter, call, 1).await {
        Err(NotAdmitted::Refused(refusal)) => refusal.wait_ms.unwrap(),
        Err(NotAdmitted::Unavailable) => panic!("{:?}", limiter.why_not_ready()),
        Ok(_) => panic!("the window was emptied"),
    }
}

/// Waits until the windows are restored; nothing may be admitted meanwhile, from the first request on.
async fn until_restored(limiter: &Arc<Shared>, jumps: u64) {
    eventually("restored", async || {
        assert!(
            admit(limiter, 99, 1).await.is_err(),
            "admitted to an emptied window"
        );
        limiter.clock_jumps().get() == jumps && limiter.is_ready()
    })
    .await;
}

#[tokio::test]
async fn a_jump_of_the_clock_does_not_empty_windows() {
    let server = Server::start_with_clock().await;
    let ledger = Ledger::default();
    let busy = full(&server, &ledger).await;
    let (idle, begun) = (
        limiter(&server.url(), DEADLINE, &ledger).await,
        std::time::Instant::now(),
    );
    for (jumps, hours) in [(1, 1), (2, -1)] {
        server.set_clock(hours * HOUR);
        // One gateway notices it at its next request, the other at its regular check.
        until_restored(&busy, jumps).await;
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
        "the test took too long for the expected waits"
    );
}

/// The server has another replication ID and another time, and no gateway was connected when they changed.
#[tokio::test]
async fn a_restart_with_another_time_does_not_empty_windows() {
    let mut server = Server::start_with_clock().await;
    let ledger = Ledger::default();
    drop(full(&server, &ledger).await);
    server.kill();
    server.set_clock(HOUR);
    server.restart_killed().await;
    let limiter = limiter(&server.url(), DEADLINE, &ledger).await;
    assert!(wait(&limiter, 100).await > 30_000);
}

/// Half of the entries are old, which shows that restored entries leave the window when they should.
#[tokio::test]
async fn entries_restored_by_age_leave_the_window_when_they_should() {
    let server = Server::start_with_clock().await;
    let ledger = Ledger::default();
    let limiter = limiter(&server.url(), DEADLINE, &ledger).await;
    for call in 1..=60 {
        let admission = admit(&limiter, call, 1).await.unwrap();
        ledger.store(call, &admission);
    }
    // As if the first half had been admitted fifty seconds ago.
    for stored in ledger.stored.lock().unwrap().iter_mut().take(30) {
        stored.age_ms = 50_000;
        stored.at_ms -= 50_000;
    }
    let _: () = server.run("FLUSHALL").await;
    server.set_clock(HOUR);
    until_restored(&limiter, 1).await;
    let wait = wait(&limiter, 100).await;
    assert!((1..=10_000).contains(&wait), "{wait}");
}
