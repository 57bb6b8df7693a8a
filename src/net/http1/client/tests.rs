//! Against a real socket: whole answers, pieces, ends that come early, and what may follow.

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

/// A provider that does this with each connection, and the pool of connections to it.
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
    Arc::new(Pool::new(address.parse().unwrap(), timeout).unwrap())
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

async fn whole(connection: &mut Connection) -> Result<Vec<u8>, UpstreamError> {
    let mut body = Vec::new();
    while let Some(data) = connection.next().await? {
        body.extend_from_slice(&data);
    }
    Ok(body)
}

#[tokio::test]
async fn one_connection_is_used_for_one_answer_after_the_other() {
    let pool = provider(|mut socket| async move {
        for number in 0.. {
            if read_request(&mut socket, b"hello").await.is_empty() {
                return;
            }
            let interim = "HTTP/1.1 103 Early\r\nlink: x\r\n\r\n";
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            let answer = format!("{interim}{head}4\r\nno. \r\n1\r\n{number}\r\n0\r\n\r\n");
            for byte in answer.as_bytes() {
                socket.write_all(&[*byte]).await.unwrap();
            }
        }
    })
    .await;
    for number in 0..3 {
        let mut connection = pool.take().await.unwrap();
        let head = connection.ask(HEAD, b"hello").await.unwrap();
        assert_eq!(head.status, 200);
        assert!(!connection.is_free(), "there is a body to read");
        let body = whole(&mut connection).await.unwrap();
        assert_eq!(body, format!("no. {number}").as_bytes());
        assert!(connection.is_free());
        pool.give_back(connection);
    }
}

/// Closed by the provider while nobody used it: the next request has another one.
#[tokio::test]
async fn a_connection_that_ended_meanwhile_is_not_used_again() {
    let pool = provider(|mut socket| async move {
        read_request(&mut socket, b"hello").await;
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        socket.write_all(answer).await.unwrap();
    })
    .await;
    for _ in 0..3 {
        let mut connection = pool.take().await.unwrap();
        connection.ask(HEAD, b"hello").await.unwrap();
        assert_eq!(whole(&mut connection).await.unwrap(), b"ok");
        pool.give_back(connection);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn an_answer_that_comes_before_the_request_is_over_is_heard() {
    let pool = provider(|mut socket| async move {
        let mut some = [0; 1_000];
        socket.read_exact(&mut some).await.unwrap();
        let answer = b"HTTP/1.1 413 No\r\ncontent-length: 3\r\n\r\nno!";
        socket.write_all(answer).await.unwrap();
        // And reads nothing more.
        tokio::time::sleep(Duration::from_secs(5)).await;
    })
    .await;
    let mut connection = pool.take().await.unwrap();
    let large = vec![b'x'; 64 << 20];
    let head = connection.ask(HEAD, &large).await.unwrap();
    assert_eq!(head.status, 413);
    assert_eq!(whole(&mut connection).await.unwrap(), b"no!");
    assert!(!connection.is_free(), "half a request is still on its way");
}

#[tokio::test]
async fn what_ends_early_is_broken() {
    for (answer, head, body) in [
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
            socket.write_all(answer.as_bytes()).await.unwrap();
        })
        .await;
        let mut connection = pool.take().await.unwrap();
        let asked = connection.ask(HEAD, b"hello").await;
        assert_eq!(asked.is_ok(), head, "{answer}");
        if head {
            assert_eq!(whole(&mut connection).await.is_ok(), body, "{answer}");
        }
        assert!(!connection.is_free(), "{answer}");
    }
}

/// Nobody reads the last bytes of a stream once it has said that it is over.
#[tokio::test]
async fn an_end_that_has_come_is_passed_over() {
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
        connection.ask(HEAD, b"hello").await.unwrap();
        assert_eq!(connection.next().await.unwrap().unwrap(), "hello");
        connection.skip_end();
        assert_eq!(connection.is_free(), free, "{rest}");
    }
}

/// Its end comes a little later than all that it had to say, and the connection is not lost for that.
#[tokio::test]
async fn an_end_that_is_late_is_waited_for() {
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
        connection.ask(HEAD, b"hello").await.unwrap();
        assert_eq!(connection.next().await.unwrap().unwrap(), "hello");
        connection.skip_end();
        assert!(!connection.is_free());
        pool.give_back_soon(connection);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

/// What is wrong about it may have been passed over by then.
#[tokio::test]
async fn a_body_that_broke_its_frame_is_the_last() {
    let pool = provider(|mut socket| async move {
        read_request(&mut socket, b"hello").await;
        let head =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhelloXX\r\n\r\n0\r\n\r\n";
        socket.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
    })
    .await;
    let mut connection = pool.take().await.unwrap();
    connection.ask(HEAD, b"hello").await.unwrap();
    assert!(whole(&mut connection).await.is_err());
    connection.skip_end();
    assert!(!connection.is_free());
}
