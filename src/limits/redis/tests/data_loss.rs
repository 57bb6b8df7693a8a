//! A server that loses data: the ceilings hold as if it had not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::*;

/// Gateways that send requests in a loop and store the admitted ones in a ledger.
struct Rush {
    limiters: Vec<Arc<Shared>>,
    is_over: Arc<AtomicBool>,
    /// How often a request was refused because the window is full.
    refusals: Arc<AtomicU64>,
    tasks: Vec<AbortOnDropHandle<()>>,
}

impl Rush {
    async fn of(gateways: u64, url: &str, ledger: &Ledger) -> Self {
        let mut rush = Self {
            limiters: Vec::new(),
            is_over: Arc::default(),
            refusals: Arc::default(),
            tasks: Vec::new(),
        };
        for gateway in 0..gateways {
            let limiter = limiter(url, DEADLINE, ledger).await;
            rush.limiters.push(limiter.clone());
            let (ledger, is_over) = (ledger.clone(), rush.is_over.clone());
            let refusals = rush.refusals.clone();
            rush.tasks
                .push(AbortOnDropHandle::new(tokio::spawn(async move {
                    let mut held = Vec::new();
                    for n in 1.. {
                        let call = gateway * 1_000_000 + n;
                        match admit(&limiter, call, 1).await {
                            Ok(admission) => {
                                // The reservation reaches the ledger only after a while.
                                tokio::time::sleep(Duration::from_millis(20)).await;
                                ledger.store(call, &admission);
                                held.push(admission);
                            }
                            Err(NotAdmitted::Refused(_)) => {
                                refusals.fetch_add(1, Relaxed);
                            }
                            Err(NotAdmitted::Unavailable) => {}
                        }
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        if is_over.load(Relaxed) {
                            return;
                        }
                    }
                })));
        }
        rush
    }

    /// Waits until requests are refused because the window is full.
    async fn is_full(&self) {
        let before = self.refusals.load(Relaxed);
        let later = async || self.refusals.load(Relaxed) > before + 6;
        eventually("a full window", later).await;
    }

    async fn end(self) {
        self.is_over.store(true, Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_under_load_does_not_empty_windows() {
    let server = Server::start(&[]).await;
    let ledger = Ledger::default();
    let rush = Rush::of(3, &server.url(), &ledger).await;
    eventually("some", async || ledger.count() > 10).await;
    let _: () = server.run("FLUSHALL").await;
    eventually("some more", async || ledger.count() > 30).await;
    let _: () = server.run("FLUSHALL").await;
    rush.is_full().await;
    let _: () = server.run("FLUSHALL").await;
    rush.is_full().await;
    rush.end().await;
    assert_eq!(ledger.count(), 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_does_not_empty_windows() {
    let mut server = Server::start(&[]).await;
    let ledger = Ledger::default();
    let rush = Rush::of(3, &server.url(), &ledger).await;
    eventually("some", async || ledger.count() > 20).await;
    server.restart().await;
    let begun = std::time::Instant::now();
    for limiter in &rush.limiters {
        ready(limiter).await;
    }
    eprintln!("ready {:?} after the server", begun.elapsed());
    rush.is_full().await;
    rush.end().await;
    assert_eq!(ledger.count(), 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_stale_replica_admits_no_more() {
    let mut old = Server::start(&[]).await;
    let new = Server::start(&["--replicaof", &format!("127.0.0.1 {}", old.port)]).await;
    eventually("following", async || {
        let text: String = new.run("INFO replication").await;
        text.contains("master_link_status:up")
    })
    .await;
    let proxy = Proxy::to(old.port).await;
    let ledger = Ledger::default();
    let rush = Rush::of(2, &proxy.url(), &ledger).await;
    eventually("some", async || ledger.count() > 10).await;
    let mark: String = old.run("GET tollgate:{p00}:mark").await;
    eventually("replicated", async || {
        let copy: Option<String> = new.run("GET tollgate:{p00}:mark").await;
        copy.as_ref() == Some(&mark)
    })
    .await;
    let _: () = new.run("REPLICAOF NO ONE").await;
    eventually("some that only the old primary has", async || {
        ledger.count() > 30
    })
    .await;
    proxy.turn_to(new.port);
    old.kill();
    rush.is_full().await;
    rush.end().await;
    assert_eq!(ledger.count(), 60);
}

#[tokio::test]
async fn nothing_is_admitted_while_the_ledger_cannot_be_read() {
    let server = Server::start(&[]).await;
    let ledger = Ledger::default();
    let limiter = limiter(&server.url(), DEADLINE, &ledger).await;
    let admission = admit(&limiter, 1, 100).await.unwrap();
    ledger.store(1, &admission);
    *ledger.is_down.lock().unwrap() = true;
    let _: () = server.run("FLUSHALL").await;
    assert!(admit(&limiter, 2, 100).await.is_err());
    eventually("the reason is reported", async || {
        limiter
            .why_not_ready()
            .is_some_and(|why| why.contains("it is down"))
    })
    .await;
    assert!(admit(&limiter, 3, 100).await.is_err());
    *ledger.is_down.lock().unwrap() = false;
    ready(&limiter).await;
    assert_eq!(left(&limiter).await, (59, 900));
    let mut admission = admission;
    admission.renew(40, 10, CEILINGS).await.unwrap();
    assert_eq!(
        left(&limiter).await,
        (59, 950),
        "the restored entry was settled"
    );
}

#[tokio::test]
async fn restoring_does_not_change_existing_entries() {
    let server = Server::start(&[]).await;
    let ledger = Ledger::default();
    let limiter = limiter(&server.url(), DEADLINE, &ledger).await;
    for call in 1..=2 {
        let mut admission = admit(&limiter, call, 100).await.unwrap();
        ledger.store(call, &admission);
        admission.settle(30);
    }
    let old = |stored: &StoredReservation| StoredReservation {
        at_ms: stored.at_ms - 60_000,
        age_ms: 60_000,
        call: 9,
        ..stored.clone()
    };
    let old = old(&ledger.stored.lock().unwrap()[0]);
    ledger.stored.lock().unwrap().push(old);
    limiter.drain(Duration::from_secs(5)).await;
    let mark = script::mark(script::partition("a"));
    let _: i64 = server.run(&format!("DEL {mark}")).await;
    assert!(admit(&limiter, 3, 1).await.is_err());
    ready(&limiter).await;
    assert_eq!(left(&limiter).await, (58, 940));
}

#[tokio::test]
async fn a_restore_from_before_another_loss_is_refused() {
    let server = Server::start(&[]).await;
    let link = Link::to(&Address::parse(&server.url()).unwrap())
        .await
        .unwrap();
    let doubt = async |name| Run::doubt(1, name).send(&link).await.unwrap();
    let Reply::Doubtful(first) = doubt(7).await else {
        panic!("a new server is in doubt");
    };
    assert_eq!(
        doubt(8).await,
        Reply::Doubtful(first.clone()),
        "the first name stays"
    );
    let _: () = server.run("FLUSHALL").await;
    let restore = async |name: &str| Run::restore(1, name).send(&link).await.unwrap();
    assert_eq!(restore(&first).await, Reply::Unmarked);
    let Reply::Doubtful(second) = doubt(9).await else {
        panic!("a flushed server is in doubt");
    };
    assert_eq!(restore(&first).await, Reply::Unmarked);
    assert_eq!(restore(&second).await, Reply::Sound);
    assert_eq!(doubt(10).await, Reply::Sound);
}
