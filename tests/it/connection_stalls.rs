//! Clients that stop reading, and clients that read slowly.

use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Http2Client, RawConnection, Step, TestGateway,
    bodies::hello_with,
    http2,
    upstream::{chunk, events, stream_head, usage_chunk},
};

const MODEL: &str = "svc-native-fast";

/// Makes the provider stream this many kilobytes and then its usage; returns the number of bytes it sends.
fn play_long_answer(gateway: &TestGateway, kilobytes: usize) -> usize {
    let kilobyte = chunk(json!({ "content": "x".repeat(1_000) }), None);
    let end = [chunk(json!({}), Some("stop")), usage_chunk(11, 5_000)];
    let body = format!("data: {kilobyte}\n\n").repeat(kilobytes) + &events(&end);
    let (head, body) = (stream_head(), body.into_bytes());
    let bytes = head.len() + body.len();
    let steps = vec![Step::Send(head), Step::Send(body), Step::Close];
    gateway.upstream.play(steps);
    bytes
}

async fn ask(gateway: &TestGateway) -> RawConnection {
    let mut connection = RawConnection::open_narrow(gateway.public).await;
    let body = hello_with(MODEL, json!({ "stream": true })).to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {}\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        gateway.key,
        body.len()
    );
    connection.send(request).await;
    connection
}

/// The account once nothing is held for it, and its charges.
async fn settled(gateway: &TestGateway) -> (Value, Vec<Value>) {
    let path = format!("/operator/accounts/{}", gateway.account_id);
    let usage = format!("{path}/usage");
    for _ in 0..600 {
        let account = gateway.operate(Method::GET, &path, None).await;
        let rows = gateway.operate(Method::GET, &usage, None).await;
        let rows = rows.assert_ok()["data"].as_array().unwrap().clone();
        if account.assert_ok()["held"] == "0.000000" && !rows.is_empty() {
            return (account.body, rows);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the call was never settled");
}

#[track_caller]
fn assert_charged_once((account, rows): (Value, Vec<Value>)) {
    assert_eq!(rows.len(), 1, "{rows:?}");
    let counted = (&rows[0]["prompt_tokens"], &rows[0]["completion_tokens"]);
    assert_eq!(counted, (&json!(11), &json!(5_000)));
    let number = |value: &Value| value.as_str().unwrap().parse::<f64>().unwrap();
    let left = 1_000.0 - number(&rows[0]["cost"]);
    assert!(
        (number(&account["balance"]) - left).abs() < 1e-6,
        "{account}"
    );
}

#[tokio::test]
async fn a_reader_that_stops_is_disconnected_and_charged_in_full() {
    let gateway = TestGateway::start_set(&[("SERVER__STALL_SECONDS", "1")]).await;
    let bytes = play_long_answer(&gateway, 12_000); // far more than all buffers on the way hold
    let mut connection = ask(&gateway).await;
    // The client reads nothing, and the call settles all the same.
    assert_charged_once(settled(&gateway).await);
    assert_eq!(gateway.upstream.bytes_sent(), bytes, "read to its end");
    let rest = connection.rest().await; // the connection has been closed
    let text = String::from_utf8_lossy(&rest);
    assert!(text.starts_with("HTTP/1.1 200"), "{text:.200}");
    assert!(!text.contains("[DONE]"), "it was cut off");
}

#[tokio::test]
async fn a_slow_reader_gets_the_whole_response() {
    const KILOBYTES: usize = 3_000;
    const STALL: Duration = Duration::from_secs(4);
    let stall = STALL.as_secs().to_string();
    let gateway = TestGateway::start_set(&[("SERVER__STALL_SECONDS", stall.as_str())]).await;
    play_long_answer(&gateway, KILOBYTES);
    let mut connection = ask(&gateway).await;
    let (started, mut answer) = (Instant::now(), Vec::new());
    while started.elapsed() < STALL * 5 / 2 {
        answer.extend(connection.read(4 << 10).await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(
        answer.len() < KILOBYTES * 1_000 / 2,
        "a slow reader is slow"
    );
    answer.extend(connection.rest().await);
    let text = String::from_utf8_lossy(&answer);
    assert_eq!(text.matches(&"x".repeat(1_000)).count(), KILOBYTES);
    assert!(text.contains("data: [DONE]"));
    assert_charged_once(settled(&gateway).await);
}

/// Over HTTP/2 the connection stays alive: the client sends PINGs, and opens no window for its responses.
#[tokio::test]
async fn a_stream_without_a_window_is_reset_and_charged_in_full() {
    let gateway = TestGateway::start_set(&[("SERVER__STALL_SECONDS", "1")]).await;
    let bytes = play_long_answer(&gateway, 2_000);
    let mut settings = h2::client::Builder::new();
    settings.initial_window_size(0);
    let mut client = Http2Client::connect(gateway.public, &settings).await;
    let bearer = format!("Bearer {}", gateway.key);
    let headers = [("authorization", bearer.as_str())];
    let body = hello_with(MODEL, json!({ "stream": true })).to_string();
    let sent = client.send(Method::POST, "/v1/chat/completions", &headers, false);
    let (stream, mut upload) = sent.await.unwrap();
    upload.send_data(Bytes::from(body), true).unwrap();
    let sent = client.send(Method::GET, "/v1/models", &[], true);
    let (list, _) = sent.await.unwrap();
    let pinging = async {
        loop {
            client.ping().await.expect("the connection stays open");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let resets = async {
        for response in [stream, list] {
            let error = http2::whole(response).await.unwrap_err();
            assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
        }
        assert_charged_once(settled(&gateway).await);
    };
    tokio::select! {
        () = resets => {}
        () = pinging => unreachable!(),
    }
    assert_eq!(gateway.upstream.bytes_sent(), bytes, "read to its end");
}
