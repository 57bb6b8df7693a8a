//! More requests than can be served: some are refused at once, the others and everything else go on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use reqwest::Method;

use crate::support::{
    Answer, Http2Client, RawConnection, Step, TestGateway,
    gateway::{OPERATOR_TOKEN, hello, until},
    http2,
    ledger_view::MODEL,
    raw::chat_request,
    upstream::Gate,
};

/// Far longer than any step takes; only ends a failing test.
const TIMEOUT: Duration = Duration::from_mins(1);

#[track_caller]
fn assert_overloaded(answer: &Answer) {
    let code = Some("overloaded");
    answer.assert_error(503, "service_unavailable", code, None);
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(answer.headers["x-should-retry"], "true");
}

async fn metrics(gateway: &TestGateway) -> String {
    let url = format!("http://{}/metrics", gateway.operator);
    let metrics = gateway.client.get(url).bearer_auth(OPERATOR_TOKEN);
    metrics.send().await.unwrap().text().await.unwrap()
}

/// Sends requests on one connection until `stop`; returns how many were served, and the refusals.
async fn keep_asking(gateway: &TestGateway, stop: &AtomicBool) -> (usize, Vec<Answer>) {
    let mut connection = RawConnection::open(gateway.public).await;
    let request = chat_request(&gateway.key, "", &hello(MODEL));
    let (mut served, mut refused) = (0, Vec::new());
    while !stop.load(Relaxed) {
        connection.send(&request).await;
        let answer = connection.answer().await;
        if answer.status == 200 {
            served += 1;
        } else {
            refused.push(answer);
        }
    }
    (served, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_with_too_much_work_refuses_calls_and_nothing_else() {
    let gateway = TestGateway::start_set(&[("OVERLOAD__MAX_LAG_MS", "2")]).await;
    let stop = AtomicBool::new(false);
    let callers = join_all((0..64).map(|_| keep_asking(&gateway, &stop)));
    let others = async {
        let begun = Instant::now();
        let refused = r#"tollgate_refusals_total{code="overloaded"}"#;
        while !metrics(&gateway).await.contains(refused) {
            assert!(begun.elapsed() < TIMEOUT, "some are refused");
        }
        for path in ["/health", "/health/live", "/v1/models", "/portal/sign-in"] {
            let answer = gateway.client.get(gateway.url(path)).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{path}");
        }
        let accounts = gateway.operate(Method::GET, "/operator/accounts", None);
        accounts.await.assert_ok();
        stop.store(true, Relaxed);
    };
    let (callers, ()) = tokio::join!(callers, others);
    let served: usize = callers.iter().map(|(served, _)| served).sum();
    let refused: Vec<_> = callers.iter().flat_map(|(_, refused)| refused).collect();
    assert!(served > 0 && !refused.is_empty());
    for answer in refused {
        assert_overloaded(answer);
    }
    // A refused call has left no trace, and with the load the refusals end.
    assert_eq!(gateway.upstream.calls(), served);
    let begun = Instant::now();
    let again = loop {
        let answer = gateway.chat(&hello(MODEL)).await;
        if answer.status == 200 {
            break begun.elapsed();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(again < TIMEOUT);
    gateway.stop().await;
}

/// Other programs take the CPU; at a moderate rate every request is served, with the default bounds and deadlines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_machine_is_no_overload() {
    let defaults = [
        ("OVERLOAD__MAX_LAG_MS", "12"),
        ("OVERLOAD__MAX_WAIT_MS", "300"),
        ("STORE__DEADLINE_MS", "500"),
        ("LIMITS__DEADLINE_MS", "200"),
    ];
    let gateway = TestGateway::start_set(&defaults).await;
    let busy = Arc::new(AtomicBool::new(true));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let busy = busy.clone();
            std::thread::spawn(move || while busy.load(Relaxed) {})
        })
        .collect();
    let body = hello(MODEL);
    for _ in 0..20 {
        let requests = (0..2).map(|_| gateway.chat(&body));
        for answer in join_all(requests).await {
            answer.assert_ok();
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    busy.store(false, Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    gateway.stop().await;
}

#[tokio::test]
async fn connections_beyond_the_bound_are_for_health_checks() {
    let gateway = TestGateway::start_set(&[("SERVER__MAX_CONNECTIONS", "3")]).await;
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: gateway\r\n\r\n");
    let call = chat_request(&gateway.key, "", &hello(MODEL));
    let mut within = Vec::new();
    for _ in 0..3 {
        let mut connection = RawConnection::open(gateway.public).await;
        connection.send(get("/health")).await;
        connection.answer().await.assert_ok();
        within.push(connection);
    }
    for path in ["/health", "/health/live"] {
        let mut extra = RawConnection::open(gateway.public).await;
        extra.send(get(path)).await;
        let answer = extra.answer().await;
        answer.assert_ok();
        assert_eq!(answer.headers["connection"], "close");
        assert_eq!(extra.rest().await, b"");
    }
    let mut extra = RawConnection::open(gateway.public).await;
    extra.send(&call).await;
    assert_overloaded(&extra.answer().await);
    assert_eq!(extra.rest().await, b"");
    // The operators' listener has no such bound.
    let accounts = gateway.operate(Method::GET, "/operator/accounts", None);
    accounts.await.assert_ok();
    // Far more than are served at all do not harm those within the bound.
    let mut flood: Vec<_> = join_all((0..200).map(|_| RawConnection::open(gateway.public))).await;
    within[0].send(&call).await;
    within[0].answer().await.assert_ok();
    // A few wait for a request and are closed after a moment whatever they do, the others at once.
    let begun = Instant::now();
    let drip = async |connection: &mut RawConnection| {
        connection.try_send(b"GET /health HTTP/1.1\r\n").await;
        loop {
            tokio::select! {
                rest = connection.rest() => break rest,
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            connection.try_send(b"x: y\r\n").await;
        }
    };
    for rest in join_all(flood.iter_mut().map(drip)).await {
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }
    assert!(begun.elapsed() < TIMEOUT);
    drop(within);
    let begun = Instant::now();
    loop {
        let mut connection = RawConnection::open(gateway.public).await;
        connection.send(&call).await;
        let answer = connection.answer().await;
        if answer.status == 200 {
            break;
        }
        assert_overloaded(&answer);
        assert!(begun.elapsed() < TIMEOUT, "there is room again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    gateway.stop().await;
}

/// One HTTP/2 connection could otherwise use up the files of the process with its calls.
#[tokio::test]
async fn requests_of_an_http_2_connection_count_like_connections() {
    let gateway = TestGateway::start_set(&[("SERVER__MAX_CONNECTIONS", "4")]).await;
    let gate = Gate::default();
    gateway.upstream.play(vec![Step::Until(gate.clone())]);
    let mut client = Http2Client::connect(gateway.public, &h2::client::Builder::new()).await;
    let bearer = format!("Bearer {}", gateway.key);
    let headers = [("authorization", bearer.as_str())];
    #[expect(clippy::async_yields_async, reason = "the response comes later")]
    let mut ask = async || {
        let sent = client.send(Method::POST, "/v1/chat/completions", &headers, false);
        let (response, mut upload) = sent.await.unwrap();
        let body = hello(MODEL).to_string();
        upload.send_data(body.into(), true).unwrap();
        response
    };
    let mut waiting = Vec::new();
    for number in 1..=3 {
        waiting.push(ask().await);
        until("it is asked", || gateway.upstream.calls() == number).await;
    }
    let (status, ..) = http2::whole(ask().await).await.unwrap();
    assert_eq!(status, 503);
    // Those that are over count no more.
    waiting.clear();
    gate.open();
    let begun = Instant::now();
    loop {
        let (status, ..) = http2::whole(ask().await).await.unwrap();
        if status != 503 {
            break;
        }
        assert!(begun.elapsed() < TIMEOUT, "there is room again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    gateway.stop().await;
}
