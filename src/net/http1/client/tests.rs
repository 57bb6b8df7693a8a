//! Responses over a real socket: complete, in pieces and cut off, and when a connection is reused.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::*;

/// Starts a provider that runs `serve` for each connection, and returns a pool for it.
async fn provider<Served: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TcpStream) -> Served + Send + 'static,
) -> Arc<Pool> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(socket));
        }
    });
    let timeout = Duration::from_secs(5);
    Arc::new(Pool::new(address.parse().unwrap(), timeout, Reuse::Pooled).unwrap())
}

/// Reads a request with this body to its end.
async fn read_request(socket: &mut TcpStream, body: &[u8]) -> String {
    let mut read = Vec::new();
    while !(read.ends_with(body) && read.windows(4).any(|four| four == b"\r\n\r\n")) {
        if socket.read_buf(&mut read).await.unwrap() == 0 {
            break;
        }
    }
    String::from_utf8(read).unwrap()
}

const HEAD: &[u8] = b"POST /x HTTP/1.1\r\nhost: y\r\ncontent-length: 5\r\n\r\n";

/// Waits until a connection that was put into the pool can be used again.
async fn rest() {
    tokio::time::sleep(2 * pool::REST).await;
}

async fn whole(connection: &mut Connection) -> Result<Vec<u8>, UpstreamError> {
    let mut body = Vec::new();
    while let Some(data) = connection.next().await? {
        body.extend_from_slice(&data);
    }
    Ok(body)
}

#[tokio::test]
async fn a_connection_is_reused_for_several_requests() {
    let pool = provider(|mut socket| async move {
        for number in 0.. {
            if read_request(&mut socket, b"hello").await.is_empty() {
                return;
            }
            let interim = "HTTP/1.1 103 Early\r\nlink: x\r\n\r\n";
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            let response = format!("{interim}{head}4\r\nno. \r\n1\r\n{number}\r\n0\r\n\r\n");
            for byte in response.as_bytes() {
                socket.write_all(&[*byte]).await.unwrap();
            }
        }
    })
    .await;
    for number in 0..3 {
        let mut connection = pool.take().await.unwrap();
        let head = connection.send(HEAD, b"hello").await.unwrap();
        assert_eq!(head.status, 200);
        assert!(!connection.is_reusable(), "there is a body to read");
        let body = whole(&mut connection).await.unwrap();
        assert_eq!(body, format!("no. {number}").as_bytes());
        assert!(connection.is_reusable());
        pool.put(connection);
        rest().await;
    }
}

/// If the provider closes an idle connection, the next request gets a new one.
#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_not_reused() {
    let pool = provider(|mut socket| async move {
        read_request(&mut socket, b"hello").await;
        let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        socket.write_all(response).await.unwrap();
    })
    .await;
    for _ in 0..3 {
        let mut connection = pool.take().await.unwrap();
        connection.send(HEAD, b"hello").await.unwrap();
        assert_eq!(whole(&mut connection).await.unwrap(), b"ok");
        pool.put(connection);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_response_before_the_end_of_the_request_is_returned() {
    let pool = provider(|mut socket| async move {
        let mut some = [0; 1_000];
        socket.read_exact(&mut some).await.unwrap();
        let response = b"HTTP/1.1 413 No\r\ncontent-length: 3\r\n\r\nno!";
        socket.write_all(response).await.unwrap();
        // It reads nothing more.
        tokio::time::sleep(Duration::from_secs(5)).await;
    })
    .await;
    let mut connection = pool.take().await.unwrap();
    let large = vec![b'x'; 64 << 20];
    let head = connection.send(HEAD, &large).await.unwrap();
    assert_eq!(head.status, 413);
    assert_eq!(whole(&mut connection).await.unwrap(), b"no!");
    assert!(!connection.is_reusable(), "half of the request is unsent");
}

#[tokio::test]
async fn a_response_that_is_cut_off_is_an_error() {
    for (response, head, body) in [
        ("", false, false),
        ("HTTP/1.1 200 OK\r\ncontent-le", false, false),
        ("HTTP/1.1 101 Other\r\n\r\n", false, false),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell",
            true,
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
            true,
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nhello\r\n",
            true,
            false,
        ),
        ("HTTP/1.1 200 OK\r\n\r\nhello", true, true),
    ] {
        let pool = provider(move |mut socket| async move {
            read_request(&mut socket, b"hello").await;
            socket.write_all(response.as_bytes()).await.unwrap();
        })
        .await;
        let mut connection = pool.take().await.unwrap();
        let sent = connection.send(HEAD, b"hello").await;
        assert_eq!(sent.is_ok(), head, "{response}");
        if head {
            assert_eq!(whole(&mut connection).await.is_ok(), body, "{response}");
        }
        assert!(!connection.is_reusable(), "{response}");
    }
}

/// The caller stops reading at the stream's own end marker, before the end of the HTTP body.
#[tokio::test]
async fn an_end_that_has_arrived_is_skipped() {
    for (rest, free) in [
        ("0\r\n\r\n", true),
        ("1\r\nx\r\n0\r\n\r\n", false),
        ("", false),
    ] {
        let pool = provider(move |mut socket| async move {
            read_request(&mut socket, b"hello").await;
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
            socket
                .write_all(format!("{head}{rest}").as_bytes())
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
        })
        .await;
        let mut connection = pool.take().await.unwrap();
        connection.send(HEAD, b"hello").await.unwrap();
        assert_eq!(connection.next().await.unwrap().unwrap(), "hello");
        connection.skip_end();
        assert_eq!(connection.is_reusable(), free, "{rest}");
    }
}

/// The end of the body arrives a little after its data, and the connection is reused.
#[tokio::test]
async fn a_late_end_is_awaited() {
    let connections = Arc::new(AtomicUsize::new(0));
    let opened = connections.clone();
    let pool = provider(move |mut socket| {
        opened.fetch_add(1, Ordering::SeqCst);
        async move {
            while !read_request(&mut socket, b"hello").await.is_empty() {
                let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
                socket.write_all(head.as_bytes()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                socket.write_all(b"0\r\n\r\n").await.unwrap();
            }
        }
    })
    .await;
    for _ in 0..3 {
        let mut connection = pool.take().await.unwrap();
        connection.send(HEAD, b"hello").await.unwrap();
        assert_eq!(connection.next().await.unwrap().unwrap(), "hello");
        connection.skip_end();
        assert!(!connection.is_reusable());
        pool.put_after_end(connection);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

/// Also if the bytes after the malformed ones look like a regular end.
#[tokio::test]
async fn a_connection_with_a_malformed_body_is_not_reused() {
    let pool = provider(|mut socket| async move {
        read_request(&mut socket, b"hello").await;
        let head =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhelloXX\r\n\r\n0\r\n\r\n";
        socket.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
    })
    .await;
    let mut connection = pool.take().await.unwrap();
    connection.send(HEAD, b"hello").await.unwrap();
    assert!(whole(&mut connection).await.is_err());
    connection.skip_end();
    assert!(!connection.is_reusable());
}
