//! A server that is down, slow, silent, out of memory or misconfigured.

use std::time::Instant;

use futures_util::future::join_all;

use super::*;

/// How many requests the server counts in the window.
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
async fn nothing_is_admitted_until_a_server_that_died_is_back() {
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
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "refusals without a connection must not wait"
    );
    server.restart().await;
    ready(&limiter).await;
    assert_eq!(
        left(&limiter).await,
        (60, 1_000),
        "the ledger had no reservations"
    );
    assert!(admit(&limiter, 4, 1).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_delays_no_request_and_counts_none() {
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
    eventually("found unusable", async || !limiter.is_ready()).await;
    server.signal("CONT");
    eventually("all buried", async || {
        limiter.drain(Duration::from_secs(1)).await;
        *limiter.inner.pending_updates.borrow() == 0
    })
    .await;
    // The server carried out the attempts that had timed out, and buried their entries before or after that.
    eventually("nothing counted", async || counted(&server).await == 0).await;
    ready(&limiter).await;
    eventually("admitted again", async || {
        admit(&limiter, 9_000, 1).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn an_admission_whose_reply_is_lost_is_buried() {
    let server = Server::start(&[]).await;
    let proxy = Proxy::to(server.port).await;
    let limiter = limiter(&proxy.url(), Duration::from_millis(100), &Ledger::default()).await;
    proxy.lose_replies(true);
    assert!(admit(&limiter, 1, 100).await.is_err());
    proxy.lose_replies(false);
    limiter.drain(Duration::from_secs(10)).await;
    assert_eq!(counted(&server).await, 0);
    // An attempt that arrives after that is too late.
    let late = Run::admit(&WindowKeys::of("a", "m"), "1.0", 100, CEILINGS);
    let link = Link::to(&Address::parse(&server.url()).unwrap()).await;
    let reply = late.send(&link.unwrap()).await.unwrap();
    assert_eq!(reply, Reply::Buried);
    assert_eq!(counted(&server).await, 0);
}

#[tokio::test]
async fn a_second_attempt_is_the_same_request() {
    let server = Server::start(&[]).await;
    let proxy = Proxy::to(server.port).await;
    let limiter = limiter(&proxy.url(), DEADLINE, &Ledger::default()).await;
    proxy.lose_replies(true);
    let cut = async {
        eventually("carried out", async || counted(&server).await == 1).await;
        proxy.lose_replies(false);
    };
    let (admission, ()) = tokio::join!(admit(&limiter, 1, 100), cut);
    let admission = admission.unwrap();
    assert_eq!(counted(&server).await, 1);
    admission.cancel();
    eventually("cancelled", async || counted(&server).await == 0).await;
}

#[tokio::test]
async fn a_caller_that_leaves_before_the_reply_is_not_counted() {
    let server = Server::start(&[]).await;
    let limiter = limiter(&server.url(), DEADLINE, &Ledger::default()).await;
    server.signal("STOP");
    let gone = tokio::time::timeout(Duration::from_millis(20), admit(&limiter, 1, 100)).await;
    assert!(gone.is_err());
    server.signal("CONT");
    limiter.drain(Duration::from_secs(5)).await;
    assert_eq!(counted(&server).await, 0);
    assert_eq!(*limiter.inner.pending_updates.borrow(), 0);
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
    let reports = async |text: &str| {
        limiter
            .why_not_ready()
            .is_some_and(|why| why.contains(text))
    };
    eventually("the reason is reported", async || {
        reports("allkeys-lru").await
    })
    .await;
    assert!(admit(&limiter, 1, 1).await.is_err());
    assert!(address.probe().await.unwrap_err().contains("noeviction"));
    let _: () = server.run("CONFIG SET maxmemory-policy noeviction").await;
    ready(&limiter).await;
    let probed = address.probe().await.unwrap();
    assert!(probed.starts_with("Redis ") && probed.contains(", master"));
    let _: () = server.run("CONFIG SET maxmemory-policy volatile-ttl").await;
    eventually("the change is noticed", async || {
        reports("volatile-ttl").await
    })
    .await;
}

#[tokio::test]
async fn a_server_out_of_memory_admits_nothing() {
    let server = Server::start(&["--maxmemory", "100mb"]).await;
    let limiter = limiter(&server.url(), DEADLINE, &Ledger::default()).await;
    let _: () = server.run("CONFIG SET maxmemory 1").await;
    assert!(admit(&limiter, 1, 1).await.is_err());
    eventually("the reason is reported", async || {
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
async fn a_cut_connection_and_an_unknown_script_are_recovered_from() {
    let server = Server::start(&[]).await;
    let limiter = limiter(&server.url(), DEADLINE, &Ledger::default()).await;
    let _: () = server.run("SCRIPT FLUSH").await;
    admit(&limiter, 1, 1).await.unwrap().settle(1);
    let _: i64 = server.run("CLIENT KILL TYPE normal").await;
    let mut admission = admit(&limiter, 2, 1).await.unwrap();
    admission.settle(1);
    assert_eq!(left(&limiter).await, (58, 998));
}
