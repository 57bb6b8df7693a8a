//! Conversations with a client that writes what it likes.

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

const TIMEOUT: Timeouts = Timeouts {
    idle: Duration::from_secs(75),
    head: Duration::from_secs(10),
};
const GOOD: &str = "GET /good HTTP/1.1\r\nhost: a\r\n\r\n";

/// A connection whose requests are answered in this way.
fn served<F>(
    answering: impl Fn(Request<Body>) -> F + Send + 'static,
) -> (DuplexStream, JoinHandle<()>)
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    served_until(answering, Shutdown::default())
}

fn served_until<F>(
    answering: impl Fn(Request<Body>) -> F + Send + 'static,
    shutdown: Shutdown,
) -> (DuplexStream, JoinHandle<()>)
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let (client, server) = duplex(1 << 20);
    let serving = tokio::spawn(async move {
        let wire = Wire::new(server, TIMEOUT);
        serve(wire, answering, &shutdown, false).await;
    });
    (client, serving)
}

/// Says what was asked: method, path, request ID and body.
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

/// All that is answered to these bytes, by when, after which the client waits.
async fn answers(bytes: impl AsRef<[u8]>) -> (String, Duration) {
    let (mut client, _serving) = served(echo);
    let started = Instant::now();
    client.write_all(bytes.as_ref()).await.unwrap();
    let mut answers = Vec::new();
    client.read_to_end(&mut answers).await.unwrap();
    (String::from_utf8(answers).unwrap(), started.elapsed())
}

/// The bodies of such answers.
fn bodies(answers: &str) -> Vec<&str> {
    let starts = answers.split('<').skip(1);
    starts
        .map(|start| start.split('>').next().unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn requests_are_answered_one_after_the_other() {
    let post = "POST /post HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello";
    let chunks = "POST /chunks HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
                  5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n";
    let (answers, took) = answers(format!("{GOOD}{post}{chunks}\r\n{GOOD}")).await;
    let expected = [
        "GET /good  ",
        "POST /post  hello",
        "POST /chunks  hello!",
        "GET /good  ",
    ];
    assert_eq!(bodies(&answers), expected);
    assert!(took >= TIMEOUT.idle, "{took:?}"); // and then it was waited for another
    let head = answers.split("\r\n\r\n").next().unwrap();
    let (head, date) = head.split_once("\r\ndate: ").unwrap();
    assert_eq!(head, "HTTP/1.1 200 OK");
    let (date, length) = date.split_once("\r\n").unwrap();
    assert!(httpdate::parse_http_date(date).is_ok(), "{date}");
    assert_eq!(length, "content-length: 13");
}

#[tokio::test(start_paused = true)]
async fn a_body_may_come_in_pieces_and_break_off() {
    let (mut client, _serving) = served(echo);
    let head = "POST /p HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n";
    for piece in [head, "01234", "567", "89", GOOD] {
        client.write_all(piece.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(b"0123").await.unwrap();
    client.shutdown().await.unwrap();
    let mut answers = String::new();
    client.read_to_string(&mut answers).await.unwrap();
    let expected = ["POST /p  0123456789", "GET /good  ", "POST /p  broken"];
    assert_eq!(bodies(&answers), expected);
    assert!(answers.contains("connection: close"));

    let broken = "POST /p HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\nhello";
    let (mut client, _serving) = served(echo);
    client
        .write_all(format!("{broken}{GOOD}").as_bytes())
        .await
        .unwrap();
    let mut answers = String::new();
    client.read_to_string(&mut answers).await.unwrap();
    assert_eq!(bodies(&answers), ["POST /p  broken"]);
}

#[tokio::test(start_paused = true)]
async fn a_bad_head_is_answered_and_is_the_last() {
    let bad = "GET / HTTP/1.1\nX-Request-Id:  mine \n\nx-request-id: another\n";
    let (answers, _) = answers(format!("{GOOD}{bad}{GOOD}")).await;
    let expected = ["GET /good  ", "REFUSED /line-ends mine "];
    assert_eq!(bodies(&answers), expected);
    assert_eq!(answers.matches("connection: close").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_drips_is_refused_in_time() {
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
    let mut answer = String::new();
    reading.read_to_string(&mut answer).await.unwrap();
    assert_eq!(bodies(&answer), ["REFUSED /too-slow slow "]);
    // The time of the paused clock, so it is exact but for its grain.
    let begun = Duration::from_millis(100);
    let took = started.elapsed();
    assert!(
        took >= TIMEOUT.head + begun && took < TIMEOUT.head + begun * 2,
        "{took:?}"
    );
    dripping.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_has_its_time_and_the_next_one_has_it_again() {
    let (mut client, _serving) = served(echo);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_mins(1)).await; // idle, which is no hurry of ours
        let (start, end) = GOOD.split_at(8);
        client.write_all(start.as_bytes()).await.unwrap();
        tokio::time::sleep(TIMEOUT.head * 99 / 100).await;
        client.write_all(end.as_bytes()).await.unwrap();
    }
    let mut answers = String::new();
    client.read_to_string(&mut answers).await.unwrap();
    assert_eq!(bodies(&answers).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_byte_is_over_after_its_time() {
    let (answers, took) = answers("").await;
    assert_eq!(answers, "");
    assert!(took >= TIMEOUT.idle && took < TIMEOUT.idle + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn what_a_refused_client_still_sends_is_taken_for_a_while() {
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
    let mut answer = String::new();
    reading.read_to_string(&mut answer).await.unwrap();
    assert_eq!(bodies(&answer), ["REFUSED /line-ends  "]);
    let lasted = flooding.await.unwrap() - started;
    let linger = Duration::from_secs(5);
    assert!(lasted >= linger && lasted < linger * 2, "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn the_body_is_asked_for_when_it_is_read() {
    let head = "POST /p HTTP/1.1\r\nhost: a\r\nexpect: 100-Continue\r\ncontent-length: 2\r\n\r\n";
    let (mut client, _serving) = served(echo);
    client.write_all(head.as_bytes()).await.unwrap();
    let mut word = vec![0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    client.read_exact(&mut word).await.unwrap();
    assert_eq!(word, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hi").await.unwrap();
    client.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(bodies(&answer), ["POST /p  hi"]);

    // Who is refused without it is not asked for it, and whatever follows is no request.
    let (mut client, _serving) = served(async |_| Response::new(Body::from("<no>")));
    let head = head.replace("length: 2", "length: 200");
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(GOOD.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert_eq!(bodies(&answer), ["no"]);
}

/// Whoever takes an unread body off the wire gives up in the end, and then the connection is over.
#[tokio::test(start_paused = true)]
async fn a_body_that_never_comes_does_not_keep_the_connection() {
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

    // A body that was not asked for is not waited for, and the next bytes are no request.
    let (mut client, serving) = served(refusing);
    let head = "POST /p HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 10\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 1_000];
    let count = client.read(&mut answer).await.unwrap();
    let answer = str::from_utf8(&answer[..count]).unwrap();
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    client.write_all(GOOD.as_bytes()).await.unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "");
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_takes_its_handler_with_it() {
    struct Told(Arc<AtomicBool>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    for begins in [false, true] {
        let dropped = Arc::new(AtomicBool::new(false));
        let told = dropped.clone();
        let (mut client, serving) = served(move |_| {
            let told = Told(told.clone());
            async move {
                let silence = async move {
                    let _told = told;
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
            let mut answer = vec![0; 4_000];
            let count = client.read(&mut answer).await.unwrap();
            let answer = str::from_utf8(&answer[..count]).unwrap();
            assert!(
                answer.ends_with("transfer-encoding: chunked\r\n\r\n5\r\nbegin\r\n"),
                "{answer}"
            );
        }
        drop(client);
        serving.await.unwrap();
        assert!(dropped.load(Ordering::SeqCst));
    }
}

#[tokio::test(start_paused = true)]
async fn answers_say_where_they_end() {
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
    let answer = async |request: String| {
        let (mut client, _serving) = served(pieces);
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let date = head.find("date").unwrap();
        let length = head[date..]
            .find("\r\n")
            .map_or(head.len(), |end| date + end);
        (head[length..].to_owned(), body.to_owned())
    };
    let large = "x".repeat(100_000);
    let (head, body) = answer("GET / HTTP/1.1\r\nhost: a\r\n\r\n".into()).await;
    assert_eq!(head, "\r\ntransfer-encoding: chunked");
    assert_eq!(
        body,
        format!("3\r\none\r\n186a0\r\n{large}\r\n3\r\ntwo\r\n0\r\n\r\n")
    );
    let (head, body) = answer("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n".into()).await;
    assert_eq!(
        (head.as_str(), body),
        ("\r\nconnection: close", format!("one{large}two"))
    );
    let (head, body) = answer("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n".into()).await;
    assert_eq!(
        (head.as_str(), body.as_str()),
        ("\r\ntransfer-encoding: chunked", "")
    );
    let (head, body) =
        answer("GET /none HTTP/1.1\r\nhost: a\r\nConnection: x, Close\r\n\r\n".into()).await;
    assert_eq!(
        (head.as_str(), body.as_str()),
        ("\r\nconnection: close", "")
    );
    // What breaks off has no end that could be taken for one.
    let (_, body) = answer(format!("GET /breaks HTTP/1.1\r\nhost: a\r\n\r\n{GOOD}")).await;
    assert_eq!(body, "3\r\none\r\n");
    let (head, body) = answer(format!("GET /short HTTP/1.1\r\nhost: a\r\n\r\n{GOOD}")).await;
    assert_eq!(
        (head.as_str(), body.as_str()),
        ("\r\ncontent-length: 5", "1234")
    );
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_stops_ends_the_connection_after_the_answer() {
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
