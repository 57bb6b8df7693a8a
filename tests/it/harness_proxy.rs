//! Tests of the fault proxy.

use std::{
    io::ErrorKind,
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::support::{FaultProxy, gateway::until, proxy::Mode};

/// Longer than any step takes. `MOMENT` is how long a test waits for bytes that must not arrive.
const TIMEOUT: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_millis(200);

/// An echo server, and the number of bytes it has received.
async fn echo() -> (SocketAddr, tokio::sync::watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (received, watch) = tokio::sync::watch::channel(0);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let received = received.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = socket.read(&mut buffer).await {
                    received.send_modify(|bytes| *bytes += read);
                    if socket.write_all(&buffer[..read]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, watch)
}

async fn says(line: &mut TcpStream, words: &str) -> std::io::Result<()> {
    line.write_all(words.as_bytes()).await?;
    let mut received = vec![0; words.len()];
    let read = timeout(TIMEOUT, line.read_exact(&mut received));
    read.await.expect("an answer in time")?;
    assert_eq!(received, words.as_bytes());
    Ok(())
}

/// Whether a connection ends with a reset rather than in order.
async fn is_reset(mut line: TcpStream) -> bool {
    let read = timeout(TIMEOUT, line.read(&mut [0; 64])).await;
    match read.expect("an end in time") {
        Ok(0) => false,
        Ok(_) => panic!("something came"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            true
        }
    }
}

#[tokio::test]
async fn what_passes_is_counted() {
    let (server, _) = echo().await;
    let proxy = FaultProxy::start(server);
    let mut lines = Vec::new();
    for _ in 0..3 {
        let mut line = TcpStream::connect(proxy.address).await.unwrap();
        says(&mut line, "one").await.unwrap();
        says(&mut line, "three").await.unwrap();
        lines.push(line);
    }
    assert_eq!(proxy.connections(), 3);
    assert_eq!(proxy.bytes(), (24, 24));
    assert_eq!(proxy.round_trips(), 6);
}

#[tokio::test]
async fn what_is_delayed_arrives_late() {
    let (server, _) = echo().await;
    let proxy = FaultProxy::start(server);
    let mut line = TcpStream::connect(proxy.address).await.unwrap();
    proxy.set(Mode::Delay(Duration::from_millis(80)));
    let started = Instant::now();
    says(&mut line, "late").await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(160));
    proxy.set(Mode::Pass);
    says(&mut line, "and goes on").await.unwrap();
}

#[tokio::test]
async fn a_dropped_reply_belongs_to_a_received_request_and_the_connection_is_not_reused() {
    let (server, mut received) = echo().await;
    let proxy = FaultProxy::start(server);
    let mut line = TcpStream::connect(proxy.address).await.unwrap();
    says(&mut line, "first").await.unwrap();
    proxy.set(Mode::DropReplies);
    line.write_all(b"second").await.unwrap();
    received.wait_for(|bytes| *bytes == 11).await.unwrap();
    assert!(timeout(MOMENT, line.read(&mut [0; 8])).await.is_err());
    proxy.set(Mode::Pass);
    assert!(is_reset(line).await, "half of what was said is lost");
    let mut next = TcpStream::connect(proxy.address).await.unwrap();
    says(&mut next, "third").await.unwrap();
}

#[tokio::test]
async fn a_connection_that_lost_nothing_continues() {
    let (server, _) = echo().await;
    let proxy = FaultProxy::start(server);
    let mut line = TcpStream::connect(proxy.address).await.unwrap();
    says(&mut line, "first").await.unwrap();
    proxy.set(Mode::DropReplies);
    proxy.set(Mode::Pass);
    says(&mut line, "second").await.unwrap();
}

#[tokio::test]
async fn a_black_hole_accepts_connections_and_forwards_nothing() {
    let (server, received) = echo().await;
    let proxy = FaultProxy::start(server);
    let mut old = TcpStream::connect(proxy.address).await.unwrap();
    says(&mut old, "first").await.unwrap();
    proxy.set(Mode::Blackhole);
    let mut new = TcpStream::connect(proxy.address).await.unwrap();
    for line in [&mut old, &mut new] {
        line.write_all(b"lost").await.unwrap();
        assert!(timeout(MOMENT, line.read(&mut [0; 8])).await.is_err());
    }
    assert_eq!(*received.borrow(), 5);
    proxy.set(Mode::Pass);
    assert!(is_reset(old).await && is_reset(new).await);
}

#[tokio::test]
async fn a_cut_comes_after_so_many_bytes() {
    let (server, received) = echo().await;
    let proxy = FaultProxy::start(server);
    proxy.set(Mode::CutAfter(10));
    let mut line = TcpStream::connect(proxy.address).await.unwrap();
    says(&mut line, "four").await.unwrap();
    line.write_all(b"four").await.unwrap();
    assert!(is_reset(line).await);
    until("the rest is received", || *received.borrow() == 6).await;
}

#[tokio::test]
async fn a_refusing_proxy_returns_at_the_same_address() {
    let (server, _) = echo().await;
    let proxy = FaultProxy::start(server);
    for mode in [Mode::Refuse, Mode::Reset, Mode::Refuse] {
        let mut line = TcpStream::connect(proxy.address).await.unwrap();
        says(&mut line, "here").await.unwrap();
        proxy.set(mode);
        assert_eq!(is_reset(line).await, mode == Mode::Reset);
        match TcpStream::connect(proxy.address).await {
            Ok(line) => assert!(mode == Mode::Reset && is_reset(line).await),
            Err(error) => assert_eq!(
                (mode, error.kind()),
                (Mode::Refuse, ErrorKind::ConnectionRefused)
            ),
        }
        proxy.set(Mode::Pass);
    }
    let mut line = TcpStream::connect(proxy.address).await.unwrap();
    says(&mut line, "again").await.unwrap();
}
