//! Memory of HTTP/2 streams that clients leave unfinished.

use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::future::join_all;
use h2::{RecvStream, SendStream};
use reqwest::Method;

use crate::support::{Http2Client, Serving};

const CONNECTIONS: usize = 40;
const STREAMS: usize = 100;
/// Together twice as many as may be kept.
const SENT_BYTES: usize = 20 << 10;
/// Ten kilobytes for each stream; a program without optimisation takes six.
const ALLOWED_GROWTH: usize = 40 << 20;

/// A connection with unfinished requests whose responses it does not read.
struct Held {
    _client: Http2Client,
    streams: Vec<(SendStream<Bytes>, RecvStream)>,
}

/// Sends requests without a key and with a part of their body, and opens no window for the responses.
async fn hold_streams(address: SocketAddr) -> Held {
    let mut settings = h2::client::Builder::new();
    settings.initial_window_size(0);
    let mut client = Http2Client::connect(address, &settings).await;
    let mut sent = Vec::new();
    for _ in 0..STREAMS {
        let path = "/v1/chat/completions";
        let (response, mut upload) = client.send(Method::POST, path, &[], false).await.unwrap();
        upload
            .send_data(vec![b'x'; SENT_BYTES].into(), false)
            .unwrap();
        sent.push((upload, response));
    }
    let mut streams = Vec::new();
    for (upload, response) in sent {
        let response = response.await.unwrap();
        // After very many of them, the address is refused as a whole.
        assert!(matches!(response.status().as_u16(), 401 | 429));
        streams.push((upload, response.into_body()));
    }
    Held {
        _client: client,
        streams,
    }
}

#[tokio::test]
async fn refused_requests_hold_little_memory_and_not_for_long() {
    let stall = [("TOLLGATE__SERVER__STALL_SECONDS", "3")];
    let serving = Serving::start_with(1, "kind = \"simulator\"", &stall).await;
    drop(hold_streams(serving.public).await); // allocates what is allocated once
    let before = serving.process.memory();
    let held = join_all((0..CONNECTIONS).map(|_| hold_streams(serving.public))).await;
    let growth = serving.process.memory().saturating_sub(before);
    assert!(growth < ALLOWED_GROWTH, "{growth} bytes");
    for (upload, mut body) in held.into_iter().flat_map(|held| held.streams) {
        let error = body.data().await.expect("no end").unwrap_err();
        assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
        drop(upload);
    }
}
