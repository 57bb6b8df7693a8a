//! Slow clients: disconnected after a timeout, without an effect on other clients.

use std::time::{Duration, Instant};

use crate::support::{
    RawConnection, Step, TestGateway,
    gateway::hello,
    upstream::{completion, response},
};

const MODEL: &str = "svc-native-fast";

#[tokio::test]
async fn a_head_that_misses_its_deadline_is_408_and_the_end() {
    let gateway = TestGateway::start_set(&[("SERVER__HEAD_SECONDS", "1")]).await;
    let mut connection = RawConnection::open(gateway.public).await;
    // Idle connections are allowed, before a request and after it.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    for _ in 0..2 {
        let live = "GET /health/live HTTP/1.1\r\nhost: gateway\r\n\r\n";
        connection.send(live).await;
        connection.answer().await.assert_ok();
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
    connection
        .send("GET /health/live HTTP/1.1\r\nx-request-id: mine\r\n")
        .await;
    let answer = connection.answer().await;
    answer.assert_error(408, "invalid_request_error", None, None);
    assert_eq!(answer.headers["x-request-id"], "mine");
    assert_eq!(answer.headers["connection"], "close");
    assert_eq!(connection.rest().await, b"");
}

/// An incomplete head behind a running response does not disturb that response.
#[tokio::test]
async fn a_slow_head_waits_for_the_answer_before_it() {
    let gateway = TestGateway::start_set(&[
        ("SERVER__HEAD_SECONDS", "1"),
        ("PROVIDERS__FAKE__TIMEOUTS__FIRST_BYTE_SECONDS", "20"),
    ])
    .await;
    let answer = completion("late").to_string();
    gateway.upstream.play(vec![
        Step::Pause(Duration::from_millis(1_700)),
        Step::Send(response(200, "application/json", &answer)),
    ]);
    let mut connection = RawConnection::open(gateway.public).await;
    let body = hello(MODEL).to_string();
    connection
        .send(format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {}\r\n\
             content-length: {}\r\n\r\n{body}GET /hea",
            gateway.key,
            body.len()
        ))
        .await;
    let late = connection.answer().await;
    assert_eq!(late.assert_ok()["choices"][0]["message"]["content"], "late");
    let slow = connection.answer().await;
    slow.assert_error(408, "invalid_request_error", None, None);
    assert_eq!(connection.rest().await, b"");
}

#[tokio::test]
async fn hundreds_of_slow_clients_do_not_affect_another() {
    let gateway = TestGateway::start_set(&[("SERVER__HEAD_SECONDS", "2")]).await;
    let public = gateway.public;
    let dripping: Vec<_> = (0..300)
        .map(|_| {
            tokio::spawn(async move {
                let mut connection = RawConnection::open(public).await;
                let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\n";
                for byte in head.as_bytes() {
                    if !connection.try_send(&[*byte]).await {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                connection.answer().await.status
            })
        })
        .collect();
    let (started, mut calls) = (Instant::now(), 0);
    while calls < 50 || !dripping.iter().all(tokio::task::JoinHandle::is_finished) {
        gateway.chat(&hello(MODEL)).await.assert_ok();
        calls += 1;
        assert!(started.elapsed() < Duration::from_mins(1), "let go in time");
    }
    for client in dripping {
        assert_eq!(client.await.unwrap(), 408);
    }
}
