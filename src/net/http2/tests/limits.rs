//! Clients that stall, flood, idle or vanish.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, Weak},
    task::{Context, Poll, ready},
};

use tokio::{
    io::ReadBuf,
    time::{Instant, Sleep},
};

use super::*;

/// Longer than any test takes.
const LONG: Duration = Duration::from_hours(10);

/// A body of this size, and a reference to its memory.
fn watched_body(size: usize) -> (Body, Weak<Vec<u8>>) {
    struct Owner(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let memory = Arc::new(vec![b'x'; size]);
    let watched = Arc::downgrade(&memory);
    (Body::from(Bytes::from_owner(Owner(memory))), watched)
}

/// Serves one response with a watched body.
fn serving_one(buffer: usize, size: usize) -> (DuplexStream, Weak<Vec<u8>>, JoinHandle<()>) {
    let (body, memory) = watched_body(size);
    let body = Mutex::new(Some(body));
    let handler = move |_| {
        let body = body.lock().unwrap().take();
        async move { Response::new(body.unwrap_or_default()) }
    };
    let (client, serving) = served(buffer, Shutdown::default(), handler);
    (client, memory, serving)
}

/// A client that opens no window, or one of a single byte, and sends PINGs.
#[tokio::test(start_paused = true)]
async fn a_response_whose_window_stays_closed_is_dropped() {
    for window in [0, 1] {
        let (client, memory, serving) = serving_one(1 << 16, 30_000);
        let mut settings = client::Builder::new();
        let client = Client::connect(client, settings.initial_window_size(window)).await;
        let started = Instant::now();
        let mut requests = client.keep_pinging();
        let (response, _) = requests
            .send_request(request(Method::GET, "/"), true)
            .unwrap();
        let mut body = response.await.unwrap().into_body();
        sleep(TIMEOUTS.stall / 2).await;
        assert_eq!(memory.strong_count(), 1, "it waits for the client");
        let error = loop {
            let data = timeout(LONG, body.data()).await.expect("an end");
            if let Err(error) = data.unwrap() {
                break error;
            }
        };
        assert_eq!(error.reason(), Some(Reason::CANCEL));
        assert!(started.elapsed() >= TIMEOUTS.stall);
        assert_eq!(memory.strong_count(), 0);
        // The rest of the connection is not affected.
        let (response, _) = requests
            .send_request(request(Method::GET, "/"), true)
            .unwrap();
        assert_eq!(whole(response).await.unwrap().1, "");
        assert!(!serving.is_finished());
    }
}

/// The whole response fits into the window and is passed to `h2`. Then the client takes the window back.
#[tokio::test(start_paused = true)]
async fn a_response_whose_window_is_withdrawn_is_dropped() {
    let (client, memory, _serving) = serving_one(1 << 10, 60_000);
    let (mut requests, mut connection) = client::handshake(client).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    let (response, _) = requests
        .send_request(request(Method::GET, "/"), true)
        .unwrap();
    let response = tokio::select! {
        response = response => response.unwrap(),
        ended = &mut connection => panic!("{ended:?}"),
    };
    connection.set_initial_window_size(0).unwrap();
    let ended = tokio::spawn(connection);
    tokio::spawn(async move {
        while pings.ping(Ping::opaque()).await.is_ok() {
            sleep(Duration::from_secs(5)).await;
        }
    });
    let (mut body, mut read) = (response.into_body(), 0);
    let error = loop {
        match timeout(LONG, body.data()).await.expect("an end") {
            Some(Ok(data)) => read += data.len(),
            Some(Err(error)) => break error,
            None => panic!("all of it was sent"),
        }
    };
    assert!(read < 60_000);
    assert_eq!(error.reason(), Some(Reason::CANCEL));
    assert_eq!(memory.strong_count(), 0);
    assert!(!ended.is_finished());
}

/// Reads few bytes at a time, with pauses.
struct SlowReader {
    stream: DuplexStream,
    pause: Pin<Box<Sleep>>,
}

impl AsyncRead for SlowReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.pause.as_mut().poll(context));
        let mut few = [0; 512];
        let mut few = ReadBuf::new(&mut few[..buffer.remaining().min(512)]);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut few))?;
        buffer.put_slice(few.filled());
        let next = Instant::now() + Duration::from_secs(5);
        self.pause.as_mut().reset(next);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SlowReader {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Its windows are open; only its socket is slow.
#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_the_whole_response() {
    const SIZE: usize = 300_000;
    let (stream, _memory, _serving) = serving_one(1 << 10, SIZE);
    let slow = SlowReader {
        stream,
        pause: Box::pin(sleep(Duration::ZERO)),
    };
    let mut settings = client::Builder::new();
    settings
        .initial_window_size(1 << 20)
        .initial_connection_window_size(1 << 20);
    let mut client = Client::connect(slow, &settings).await;
    let started = Instant::now();
    let (_, body) = client.get("/").await;
    assert_eq!(body.len(), SIZE);
    assert!(started.elapsed() > 10 * TIMEOUTS.stall);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_whatever_it_pings() {
    let handler = async |_| {
        sleep(10 * TIMEOUTS.idle).await;
        Response::new(Body::empty())
    };
    let (client, serving) = served(1 << 16, Shutdown::default(), handler);
    let mut client = Client::connect(client, &client::Builder::new()).await;
    client.get("/").await; // a running request keeps the connection open
    let answered = Instant::now();
    let _requests = client.keep_pinging();
    timeout(LONG, serving).await.expect("an end").unwrap();
    assert!(answered.elapsed() >= TIMEOUTS.idle);
    assert!(answered.elapsed() <= 2 * TIMEOUTS.idle);
}

/// A request without the end of its head is not counted as one.
#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_is_closed() {
    use tokio::io::AsyncWriteExt as _;
    let unfinished_headers = [0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82];
    for sent in [&b""[..], &unfinished_headers] {
        let (mut client, serving) = served(1 << 16, Shutdown::default(), echo);
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let opening = [&preface[..], &settings, sent].concat();
        client.write_all(&opening).await.unwrap();
        timeout(LONG, serving).await.expect("an end").unwrap();
    }
}

/// It does not respond to PINGs.
#[tokio::test(start_paused = true)]
async fn a_vanished_client_is_disconnected_and_its_handler_dropped() {
    let running = Arc::new(());
    let handler = {
        let running = running.clone();
        move |_| {
            let running = running.clone();
            async move {
                std::future::pending::<()>().await;
                drop(running);
                Response::new(Body::empty())
            }
        }
    };
    let (client, serving) = served(1 << 16, Shutdown::default(), handler);
    let (mut requests, mut connection) = client::handshake(client).await.unwrap();
    let (_response, _) = requests
        .send_request(request(Method::GET, "/"), true)
        .unwrap();
    let sending = timeout(Duration::from_secs(1), &mut connection);
    sending.await.expect_err("the connection stays open");
    assert_eq!(Arc::strong_count(&running), 3, "the handler runs");
    timeout(LONG, serving).await.expect("an end").unwrap();
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&running), 1);
}

/// Opens and resets streams one by one, so that `h2` does not see a flood of its own.
async fn cancel(client: &mut Client, times: usize, completed_between: usize) -> bool {
    for _ in 0..times {
        let Ok(mut requests) = client.requests.clone().ready().await else {
            return false;
        };
        let sent = requests.send_request(request(Method::GET, "/slow"), true);
        let Ok((response, mut stream)) = sent else {
            return false;
        };
        if client.pings.ping(Ping::opaque()).await.is_err() {
            return false;
        }
        stream.send_reset(Reason::CANCEL);
        drop(response);
        for _ in 0..completed_between {
            client.get("/").await;
        }
    }
    client.pings.ping(Ping::opaque()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_client_that_only_cancels_is_disconnected() {
    let handler = async |request: Request<Body>| {
        if request.uri().path() == "/slow" {
            std::future::pending::<()>().await;
        }
        Response::new(Body::empty())
    };
    let (client, _serving) = served(1 << 16, Shutdown::default(), handler);
    let mut client = Client::connect(client, &client::Builder::new()).await;
    assert!(cancel(&mut client, 700, 1).await, "as many were completed");
    assert!(cancel(&mut client, 400, 0).await);
    sleep(TIMEOUTS.idle).await; // periods end
    assert!(cancel(&mut client, 400, 0).await);
    assert!(!cancel(&mut client, 10_000, 0).await);
    let error = client.ended.await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
}
