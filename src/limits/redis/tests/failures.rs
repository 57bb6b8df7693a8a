//! A server that is away, slow, deaf, full or set up wrongly.

use std::time::Instant;

use futures_util::future::join_all;

use super::*;

/// The requests that count just now, as the server has them.
async fn counted(server: &Server) -> u64 {
    let keys: Vec<String> = server.run("KEYS *:counts:a:m").await;
    match keys.first() {
        Some(key) => {
            let count: Option<u64> = server.run(&format!("HGET {key} #n")).await;
            count.unwrap_or(0)
        }
        None => 0,
    }
}

#[tokio::test]
async fn without_a_server_nothing_is_admitted_and_with_it_everything_goes_on() {
    let mut server = Server::start(&[]).await;
    let limiter = limiter(&server.url(), DEADLINE, &Ledger::default()).await;
    let mut admission = admit(&limiter, 1, 100).await.unwrap();
    let kept = admit(&limiter, 2, 10).await.unwrap();
    server.kill();
    let refused = admit(&limiter, 3, 1).await.err();
    assert_eq!(refused, Some(NotAdmitted::Unavailable));
    let lost = admission.renew(50, 10, CEILINGS).await;
    assert_eq!(lost, Err(NotRenewed::Lost));
    drop(kept);
    assert!(!limiter.is_ready());
    let begun = Instant::now();
    for call in 10..1_010 {
        assert!(admit(&limiter, call, 1).await.is_err());
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "they wait");
    server.restart().await;
    ready(&limiter).await;
    assert_eq!(left(&limiter).await, (60, 1_000), "the ledger knew of none");
    assert!(admit(&limiter, 4, 1).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_holds_nobody_up_and_keeps_no_trace() {
    let server = Server::start(&[]).await;
    let deadline = Duration::from_millis(50);
    let limiter = limiter(&server.url(), deadline, &Ledger::default()).await;
    server.signal("STOP");
    let begun = Instant::now();
    let tries = join_all((0..6_000).map(|call| admit(&limiter, call, 1))).await;
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    let unavailable = Some(NotAdmitted::Unavailable);
    assert!(tries.into_iter().all(|tried| tried.err() == unavailable));
    eventually("known to be away", async || !limiter.is_ready()).await;
    server.signal("CONT");
    eventually("all taken back", async || {
        limiter.drain(Duration::from_secs(1)).await;
        *limiter.inner.untold.borrow() == 0
    })
    .await;
    // What was sent and never answered was carried out all the same, and before or after that
    // taken back.
    eventually("nothing counted", async || counted(&server).await == 0).await;
    ready(&limiter).await;
    eventually("admitted again", async || {
        admit(&limiter, 9_000, 1).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn an_admission_whose_answer_is_lost_is_taken_back() {
    let server = Server::start(&[]).await;
    let proxy = Proxy::to(server.port).await;
    let limiter = limiter(&proxy.url(), Duration::from_millis(100), &Ledger::default()).await;
    proxy.lose_answers(true);
    assert!(admit(&limiter, 1, 100).await.is_err());
    proxy.lose_answers(false);
    limiter.drain(Duration::from_secs(10)).await;
    assert_eq!(counted(&server).await, 0);
    // A try that was on its way all the time comes too late.
    let late = Run::admit(&Minute::of("a", "m"), "1.0", 100, CEILINGS);
    let link = Link::to(&Address::parse(&server.url()).unwrap()).await;
    let answer = late.ask(&link.unwrap()).await.unwrap();
    assert_eq!(answer, Answer::Buried);
    assert_eq!(counted(&server).await, 0);
}

#[tokio::test]
async fn a_second_try_is_the_same_request() {
    let server = Server::start(&[]).await;
    let proxy = Proxy::to(server.port).await;
    let limiter = limiter(&proxy.url(), DEADLINE, &Ledger::default()).await;
    proxy.delay_next_answer(DEADLINE + Duration::from_millis(100));
    let admission = admit(&limiter, 1, 100).await.unwrap();
    assert_eq!(counted(&server).await, 1);
    admission.cancel();
    eventually("taken back", async || counted(&server).await == 0).await;
}

#[tokio::test]
async fn who_goes_away_before_the_answer_is_not_counted() {
    let server = Server::start(&[]).await;
    let limiter = limiter(&server.url(), DEADLINE, &Ledger::default()).await;
    server.signal("STOP");
    let gone = tokio::time::timeout(Duration::from_millis(20), admit(&limiter, 1, 100)).await;
    assert!(gone.is_err());
    server.signal("CONT");
    limiter.drain(Duration::from_secs(5)).await;
    assert_eq!(counted(&server).await, 0);
    assert_eq!(*limiter.inner.untold.borrow(), 0);
}

#[tokio::test]
async fn a_server_that_may_evict_is_not_used() {
    let args = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = Server::start(&args).await;
    let address = Address::parse(&server.url()).unwrap();
    let limiter = Shared::connect(
        &address,
        DEADLINE,
        KNOWN_WITHIN,
        Ledger::default().rebuild(),
    );
    let says = async |word: &str| {
        limiter
            .why_not_ready()
            .is_some_and(|why| why.contains(word))
    };
    eventually("said why", async || says("allkeys-lru").await).await;
    assert!(admit(&limiter, 1, 1).await.is_err());
    assert!(address.probe().await.unwrap_err().contains("noeviction"));
    let _: () = server.run("CONFIG SET maxmemory-policy noeviction").await;
    ready(&limiter).await;
    let probed = address.probe().await.unwrap();
    assert!(probed.starts_with("Redis ") && probed.contains(", master"));
    let _: () = server.run("CONFIG SET maxmemory-policy volatile-ttl").await;
    eventually("noticed later", async || says("volatile-ttl").await).await;
}

#[tokio::test]
async fn a_server_without_room_admits_nothing() {
    let server = Server::start(&["--maxmemory", "100mb"]).await;
    let limiter = limiter(&server.url(), DEADLINE, &Ledger::default()).await;
    let _: () = server.run("CONFIG SET maxmemory 1").await;
    assert!(admit(&limiter, 1, 1).await.is_err());
    eventually("said why", async || {
        limiter
            .why_not_ready()
            .is_some_and(|why| why.contains("OOM"))
    })
    .await;
    let _: () = server.run("CONFIG SET maxmemory 0").await;
    ready(&limiter).await;
    assert_eq!(left(&limiter).await, (60, 1_000));
}

#[tokio::test]
async fn a_connection_that_is_cut_and_a_script_that_is_unknown_are_no_failures() {
    let server = Server::start(&[]).await;
    let limiter = limiter(&server.url(), DEADLINE, &Ledger::default()).await;
    let _: () = server.run("SCRIPT FLUSH").await;
    admit(&limiter, 1, 1).await.unwrap().settle(1);
    let _: i64 = server.run("CLIENT KILL TYPE normal").await;
    let mut admission = admit(&limiter, 2, 1).await.unwrap();
    admission.settle(1);
    assert_eq!(left(&limiter).await, (58, 998));
}
