//! HTTP/2 clients that send frames without end: they are disconnected, and others are served.

use reqwest::Method;

use crate::support::{Http2Client, RawConnection, TestGateway, gateway::hello};

const MODEL: &str = "svc-native-fast";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Reason of a GOAWAY frame.
const ENHANCE_YOUR_CALM: u8 = 11;

/// A frame of stream `stream`.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [0, length[0], length[1], kind, flags, 0, 0, 0, stream];
    [&head, payload].concat()
}

#[tokio::test]
async fn a_client_that_opens_and_resets_streams_is_disconnected() {
    let gateway = TestGateway::start().await;
    let mut client = Http2Client::connect(gateway.public, &h2::client::Builder::new()).await;
    let mut opened = 0;
    while opened < 10_000 {
        let sent = client.send(Method::GET, "/v1/models", &[], true).await;
        let Ok((_response, mut stream)) = sent else {
            break;
        };
        stream.send_reset(h2::Reason::CANCEL);
        opened += 1;
        // Many of them in one write.
        if opened % 50 == 0 && client.ping().await.is_err() {
            break;
        }
    }
    assert!(opened < 10_000);
    gateway.chat(&hello(MODEL)).await.assert_ok();
    let error = client.ended().await.unwrap_err();
    assert_eq!(error.reason(), Some(h2::Reason::ENHANCE_YOUR_CALM));
}

#[tokio::test]
async fn a_head_without_an_end_is_cut_off() {
    let gateway = TestGateway::start().await;
    let mut connection = RawConnection::open(gateway.public).await;
    let settings = frame(4, 0, 0, &[]);
    // Method GET, scheme http, path /; no end of the head.
    let head = frame(1, 0, 1, &[0x82, 0x86, 0x84]);
    connection.send([PREFACE, &settings, &head].concat()).await;
    let continuation = frame(9, 0, 1, &[]);
    for _ in 0..1_000 {
        if !connection.try_send(&continuation).await {
            break;
        }
    }
    let received = connection.rest().await;
    // GOAWAY: the last stream, and the reason.
    let goaway = received
        .windows(9)
        .position(|at| at[3] == 7 && at[5..] == [0; 4]);
    let goaway = goaway.expect("a GOAWAY frame");
    assert_eq!(received[goaway + 16], ENHANCE_YOUR_CALM);
    gateway.chat(&hello(MODEL)).await.assert_ok();
}
