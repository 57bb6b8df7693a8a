//! Requests of well-behaved, slow, malformed and vanishing clients, over an in-memory connection.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    task::JoinHandle,
    time::Instant,
};

use super::*;
use crate::net::drain::drain_unread;

const TIMEOUTS: Timeouts = Timeouts {
    idle: Duration::from_secs(75),
    head: Duration::from_secs(10),
};
const GOOD: &str = "GET /good HTTP/1.1\r\nhost: a\r\n\r\n";

/// A client connection that is served with `handler`, and the task that serves it.
fn served<F>(
    handler: impl Fn(Request<Body>) -> F + Send + 'static,
) -> (DuplexStream, JoinHandle<()>)
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    served_until(handler, Shutdown::default())
}

fn served_until<F>(
    handler: impl Fn(Request<Body>) -> F + Send + 'static,
    shutdown: Shutdown,
) -> (DuplexStream, JoinHandle<()>)
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let (client, server) = duplex(1 << 20);
    let serving = tokio::spawn(async move {
        let connection = Connection::new(server, TIMEOUTS);
        serve(connection, handler, &shutdown, false).await;
    });
    (client, serving)
}

/// Responds with the method, path, request ID and body of the request.
async fn echo(request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_or_else(
        |_| "broken".to_owned(),
        |body| String::from_utf8(body.to_bytes().to_vec()).unwrap(),
    );
    let id = parts.headers.get("x-request-id");
    let id = id.map_or("", |id| id.to_str().unwrap());
    let (method, path) = (parts.method, parts.uri.path().to_owned());
    Response::new(Body::from(format!("<{method} {path} {id} {body}>")))
}

/// All responses to these bytes, and the time until the server closed the connection.
async fn responses(bytes: impl AsRef<[u8]>) -> (String, Duration) {
    let (mut client, _serving) = served(echo);
    let started = Instant::now();
    client.write_all(bytes.as_ref()).await.unwrap();
    let mut responses = Vec::new();
    client.read_to_end(&mut responses).await.unwrap();
    (String::from_utf8(responses).unwrap(), started.elapsed())
}

/// The bodies that [`echo`] put into responses.
fn bodies(responses: &str) -> Vec<&str> {
    let starts = responses.split('<').skip(1);
    starts
        .map(|start| start.split('>').next().unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn requests_get_responses_in_order() {
    let post = "POST /post HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello";
    let chunks = "POST /chunks HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
                  5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n";
    let (responses, took) = responses(format!("{GOOD}{post}{chunks}\r\n{GOOD}")).await;
    let expected = [
        "GET /good  ",
        "POST /post  hello",
        "POST /chunks  hello!",
        "GET /good  ",
    ];
    assert_eq!(bodies(&responses), expected);
    assert!(took >= TIMEOUTS.idle, "{took:?}"); // the server then waited for another request
    let head = responses.split("\r\n\r\n").next().unwrap();
    let (head, date) = head.split_once("\r\ndate: ").unwrap();
    assert_eq!(head, "HTTP/1.1 200 OK");
    let (date, length) = date.split_once("\r\n").unwrap();
    assert!(httpdate::parse_http_date(date).is_ok(), "{date}");
    assert_eq!(length, "content-length: 13");
}

#[tokio::test(start_paused = true)]
async fn a_body_may_arrive_in_pieces_and_be_cut_off() {
    let (mut client, _serving) = served(echo);
    let head = "POST /p HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n";
    for piece in [head, "01234", "567", "89", GOOD] {
        client.write_all(piece.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(b"0123").await.unwrap();
    client.shutdown().await.unwrap();
    let mut responses = String::new();
    client.read_to_string(&mut responses).await.unwrap();
    let expected = ["POST /p  0123456789", "GET /good  ", "POST /p  broken"];
    assert_eq!(bodies(&responses), expected);
    assert!(responses.contains("connection: close"));

    let broken = "POST /p HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\nhello";
    let (mut client, _serving) = served(echo);
    client
        .write_all(format!("{broken}{GOOD}").as_bytes())
        .await
        .unwrap();
    let mut responses = String::new();
    client.read_to_string(&mut responses).await.unwrap();
    assert_eq!(bodies(&responses), ["POST /p  broken"]);
}

#[tokio::test(start_paused = true)]
async fn a_bad_head_gets_a_response_and_closes_the_connection() {
    let bad = "GET / HTTP/1.1\nX-Request-Id:  mine \n\nx-request-id: another\n";
    let (responses, _) = responses(format!("{GOOD}{bad}{GOOD}")).await;
    let expected = ["GET /good  ", "REFUSED /line-ends mine "];
    assert_eq!(bodies(&responses), expected);
    assert_eq!(responses.matches("connection: close").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_drips_is_refused_at_its_timeout() {
    let (client, _serving) = served(echo);
    let (mut reading, mut writing) = tokio::io::split(client);
    let started = Instant::now();
    let dripping = tokio::spawn(async move {
        let head = b"GET / HTTP/1.1\r\nx-request-id: slow\r\nx: ";
        for byte in head.iter().chain(std::iter::repeat(&b'x')) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if writing.write_all(&[*byte]).await.is_err() {
                return;
            }
        }
    });
    let mut response = String::new();
    reading.read_to_string(&mut response).await.unwrap();
    assert_eq!(bodies(&response), ["REFUSED /too-slow slow "]);
    // The clock is paused, so the time is exact up to the interval between two bytes.
    let begun = Duration::from_millis(100);
    let took = started.elapsed();
    assert!(
        took >= TIMEOUTS.head + begun && took < TIMEOUTS.head + begun * 2,
        "{took:?}"
    );
    dripping.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_head_timeout_starts_again_with_each_request() {
    let (mut client, _serving) = served(echo);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_mins(1)).await; // idle, below the idle timeout
        let (start, end) = GOOD.split_at(8);
        client.write_all(start.as_bytes()).await.unwrap();
        tokio::time::sleep(TIMEOUTS.head * 99 / 100).await;
        client.write_all(end.as_bytes()).await.unwrap();
    }
    let mut responses = String::new();
    client.read_to_string(&mut responses).await.unwrap();
    assert_eq!(bodies(&responses).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_byte_is_closed_after_the_idle_timeout() {
    let (responses, took) = responses("").await;
    assert_eq!(responses, "");
    assert!(took >= TIMEOUTS.idle && took < TIMEOUTS.idle + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn bytes_after_a_refused_head_are_discarded_for_a_while() {
    let (client, _serving) = served(echo);
    let (mut reading, mut writing) = tokio::io::split(client);
    let started = Instant::now();
    writing.write_all(b"nonsense\n\n").await.unwrap();
    let flooding = tokio::spawn(async move {
        while writing.write_all(&[b'x'; 1 << 10]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Instant::now()
    });
    let mut response = String::new();
    reading.read_to_string(&mut response).await.unwrap();
    assert_eq!(bodies(&response), ["REFUSED /line-ends  "]);
    let lasted = flooding.await.unwrap() - started;
    let linger = Duration::from_secs(5);
    assert!(lasted >= linger && lasted < linger * 2, "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn continue_is_sent_when_the_body_is_read() {
    let head = "POST /p HTTP/1.1\r\nhost: a\r\nexpect: 100-Continue\r\ncontent-length: 2\r\n\r\n";
    let (mut client, _serving) = served(echo);
    client.write_all(head.as_bytes()).await.unwrap();
    let mut interim = vec![0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    client.read_exact(&mut interim).await.unwrap();
    assert_eq!(interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hi").await.unwrap();
    client.shutdown().await.unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).await.unwrap();
    assert_eq!(bodies(&response), ["POST /p  hi"]);

    // If the handler does not read the body, no 100 Continue is sent, and bytes that follow are not taken for a
    // request.
    let (mut client, _serving) = served(async |_| Response::new(Body::from("<no>")));
    let head = head.replace("length: 2", "length: 200");
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(GOOD.as_bytes()).await.unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.contains("connection: close\r\n"), "{response}");
    assert_eq!(bodies(&response), ["no"]);
}

/// Draining an unread body has a timeout, after which the connection is closed.
#[tokio::test(start_paused = true)]
async fn a_body_that_never_arrives_does_not_keep_the_connection() {
    let refusing = |request: Request<Body>| async {
        drain_unread(request.into_body());
        Response::new(Body::from("<no>"))
    };
    let (mut client, serving) = served(refusing);
    let started = Instant::now();
    let head = b"POST /p HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n12345";
    client.write_all(head).await.unwrap();
    serving.await.unwrap();
    let took = started.elapsed();
    assert!(
        took > Duration::from_secs(20) && took < Duration::from_mins(1),
        "{took:?}"
    );

    // Without 100 Continue the body is not awaited, and bytes that follow are not taken for a request.
    let (mut client, serving) = served(refusing);
    let head = "POST /p HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 10\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let mut response = vec![0; 1_000];
    let count = client.read(&mut response).await.unwrap();
    let response = str::from_utf8(&response[..count]).unwrap();
    assert!(response.contains("connection: close\r\n"), "{response}");
    client.write_all(GOOD.as_bytes()).await.unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "");
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_handler_is_dropped_when_its_client_hangs_up() {
    struct SetOnDrop(Arc<AtomicBool>);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    for begins in [false, true] {
        let dropped = Arc::new(AtomicBool::new(false));
        let flag = dropped.clone();
        let (mut client, serving) = served(move |_| {
            let guard = SetOnDrop(flag.clone());
            async move {
                let silence = async move {
                    let _guard = guard;
                    std::future::pending::<Option<Result<Bytes, io::Error>>>().await
                };
                if !begins {
                    silence.await;
                    unreachable!()
                }
                let begin = futures_util::stream::iter([Ok(Bytes::from("begin"))]);
                let never = futures_util::stream::once(silence);
                let never = futures_util::StreamExt::filter_map(never, std::future::ready);
                Response::new(Body::from_stream(futures_util::StreamExt::chain(
                    begin, never,
                )))
            }
        });
        client.write_all(GOOD.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert!(!dropped.load(Ordering::SeqCst));
        if begins {
            let mut response = vec![0; 4_000];
            let count = client.read(&mut response).await.unwrap();
            let response = str::from_utf8(&response[..count]).unwrap();
            assert!(
                response.ends_with("transfer-encoding: chunked\r\n\r\n5\r\nbegin\r\n"),
                "{response}"
            );
        }
        drop(client);
        serving.await.unwrap();
        assert!(dropped.load(Ordering::SeqCst));
    }
}

#[tokio::test(start_paused = true)]
async fn responses_mark_where_they_end() {
    let pieces = |request: Request<Body>| async move {
        let large = Bytes::from("x".repeat(100_000));
        let pieces = [Bytes::from("one"), Bytes::new(), large, Bytes::from("two")];
        let pieces = futures_util::stream::iter(pieces.map(Ok::<_, io::Error>));
        let body = Body::from_stream(pieces);
        match request.uri().path() {
            "/none" => Response::builder().status(204).body(Body::empty()).unwrap(),
            "/breaks" => {
                let broken = [Ok(Bytes::from("one")), Err(io::Error::other("broken"))];
                Response::new(Body::from_stream(futures_util::stream::iter(broken)))
            }
            "/short" => Response::builder()
                .header("content-length", "5")
                .body(Body::from("1234"))
                .unwrap(),
            _ => Response::new(body),
        }
    };
    let respond = async |request: String| {
        let (mut client, _serving) = served(pieces);
        client.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        client.read_to_string(&mut response).await.unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let date = head.find("date").unwrap();
        let length = head[date..]
            .find("\r\n")
            .map_or(head.len(), |end| date + end);
        (head[length..].to_owned(), body.to_owned())
    };
    let large = "x".repeat(100_000);
    let (head, body) = respond("GET / HTTP/1.1\r\nhost: a\r\n\r\n".into()).await;
    assert_eq!(head, "\r\ntransfer-encoding: chunked");
    assert_eq!(
        body,
        format!("3\r\none\r\n186a0\r\n{large}\r\n3\r\ntwo\r\n0\r\n\r\n")
    );
    let (head, body) = respond("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n".into()).await;
    assert_eq!(
        (head.as_str(), body),
        ("\r\nconnection: close", format!("one{large}two"))
    );
    let (head, body) = respond("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n".into()).await;
    assert_eq!(
        (head.as_str(), body.as_str()),
        ("\r\ntransfer-encoding: chunked", "")
    );
    let (head, body) =
        respond("GET /none HTTP/1.1\r\nhost: a\r\nConnection: x, Close\r\n\r\n".into()).await;
    assert_eq!(
        (head.as_str(), body.as_str()),
        ("\r\nconnection: close", "")
    );
    // A body that fails has no end marker.
    let (_, body) = respond(format!("GET /breaks HTTP/1.1\r\nhost: a\r\n\r\n{GOOD}")).await;
    assert_eq!(body, "3\r\none\r\n");
    let (head, body) = respond(format!("GET /short HTTP/1.1\r\nhost: a\r\n\r\n{GOOD}")).await;
    assert_eq!(
        (head.as_str(), body.as_str()),
        ("\r\ncontent-length: 5", "1234")
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_closes_the_connection_after_the_response() {
    let shutdown = Shutdown::default();
    let (mut idle, serving) = served_until(echo, shutdown.clone());
    idle.write_all(GOOD.as_bytes()).await.unwrap();
    let slow = |request| async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        echo(request).await
    };
    let (mut busy, _serving) = served_until(slow, shutdown.clone());
    busy.write_all(format!("{GOOD}{GOOD}").as_bytes())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    shutdown.request();
    serving.await.unwrap();
    let (mut from_idle, mut from_busy) = (String::new(), String::new());
    idle.read_to_string(&mut from_idle).await.unwrap();
    busy.read_to_string(&mut from_busy).await.unwrap();
    assert!(!from_idle.contains("connection: close"), "{from_idle}");
    assert_eq!(bodies(&from_busy).len(), 1);
    assert!(from_busy.contains("connection: close\r\n"), "{from_busy}");
}
