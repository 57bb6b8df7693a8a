//! Responses, one on each connection, with interim responses before it and bytes after it.

use axum::http::{HeaderMap, Request};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;

use super::{MESSAGES, Peer, has_bare_line_feed, polls, put_headers_and_body, run};
use crate::{
    base::mutation::Random,
    net::http1::codec::{BadResponse, NextOfBody, ResponseReader},
};

/// A response that was read to its end.
#[derive(Debug)]
struct Read {
    status: u16,
    content_type: String,
    retry_after: Option<String>,
    body: Vec<u8>,
    /// Whether the connection may be used again.
    is_reusable: bool,
}

#[derive(Debug)]
enum Codec {
    Complete(Read),
    Refused(BadResponse),
    BrokenBody,
    Incomplete,
}

fn by_the_codec(pieces: &[&[u8]], ends: bool) -> Codec {
    let (mut reader, mut buffer) = (ResponseReader::default(), BytesMut::new());
    let mut pieces = pieces.iter();
    let mut head = loop {
        match reader.next(&mut buffer) {
            Ok(Some(head)) => break head,
            Ok(None) => {}
            Err(error) => return Codec::Refused(error),
        }
        match pieces.next() {
            Some(piece) => buffer.extend_from_slice(piece),
            None => return Codec::Incomplete,
        }
    };
    let (mut body, mut is_closed) = (Vec::new(), false);
    loop {
        match head.framing.next(&mut buffer) {
            Ok(NextOfBody::Data(data)) => body.extend_from_slice(&data),
            Ok(NextOfBody::End) => break,
            Err(_) => return Codec::BrokenBody,
            Ok(NextOfBody::More) => match pieces.next() {
                Some(piece) => buffer.extend_from_slice(piece),
                None if ends && head.framing.may_end() => {
                    is_closed = true;
                    break;
                }
                None => return Codec::Incomplete,
            },
        }
    }
    let nothing_follows = buffer.is_empty() && pieces.next().is_none() && !ends && !is_closed;
    Codec::Complete(Read {
        status: head.status,
        content_type: head.content_type,
        retry_after: head.retry_after,
        body,
        is_reusable: head.keep_alive && nothing_follows,
    })
}

fn by_hyper(pieces: &[&[u8]], ends: bool) -> Option<Read> {
    let exchange = async {
        let (mut sender, connection) = http1::Builder::new()
            .max_headers(128)
            .handshake::<_, Empty<Bytes>>(Peer::server(pieces, ends))
            .await
            .ok()?;
        let request = Request::post("/x").header("host", "a");
        let request = request.body(Empty::new()).unwrap();
        let read = async {
            let (parts, body) = sender.send_request(request).await.ok()?.into_parts();
            let body = body.collect().await.ok()?.to_bytes().to_vec();
            // The connection looks for further bytes when it is polled next.
            for _ in 0..6 {
                tokio::task::yield_now().await;
            }
            Some(Read {
                status: parts.status.as_u16(),
                content_type: last(&parts.headers, "content-type")
                    .unwrap_or_default()
                    .to_ascii_lowercase(),
                retry_after: last(&parts.headers, "retry-after"),
                body,
                is_reusable: sender.is_ready(),
            })
        };
        let connection = async {
            let _ = connection.await;
            std::future::pending::<()>().await;
        };
        let mut read = std::pin::pin!(read);
        let mut connection = std::pin::pin!(connection);
        std::future::poll_fn(|context| {
            let _ = connection.as_mut().poll(context);
            read.as_mut().poll(context)
        })
        .await
    };
    run(exchange, polls(pieces)).flatten()
}

fn last(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get_all(name).iter().next_back()?;
    str::from_utf8(value.as_bytes()).ok().map(str::to_owned)
}

fn response(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(8).saturating_sub(5) {
        let interim = *random.pick(&[
            &b"HTTP/1.1 100 Continue\r\n\r\n"[..],
            b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
            b"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n",
            b"HTTP/1.1 102 X\r\nTransfer-Encoding: chunked\r\n\r\n",
        ]);
        bytes.extend_from_slice(interim);
    }
    let status = *random.pick(&[200, 404, 429, 500]);
    let odd = *random.pick(&[204, 304, 101, 299, 999, 99]);
    let status = if random.once_in(4) { odd } else { status };
    let odd = *random.pick(&["HTTP/1.0", "HTTP/2"]);
    let version = if random.once_in(10) { odd } else { "HTTP/1.1" };
    let line_end = *random.pick(&[
        " OK\r\n",
        " OK\r\n",
        " \r\n",
        "\r\n",
        " Caf\u{e9}\r\n",
        " OK\n",
    ]);
    bytes.extend_from_slice(format!("{version} {status:03}{line_end}").as_bytes());
    put_headers_and_body(&mut bytes, random, 3);
    if random.once_in(5) {
        bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }
    bytes
}

/// The list: what the codec refuses although hyper accepts it, with what must be in the bytes to justify it.
fn is_justified(refused: &Codec, theirs: &Read, bytes: &[u8]) -> bool {
    let text = bytes.to_ascii_lowercase();
    let has = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
    match refused {
        // One `Transfer-Encoding` that is `chunked`, or none. hyper takes the last one, and reads what it does not know
        // to the end of the connection.
        Codec::Refused(BadResponse::TransferEncoding) => has(b"transfer-encoding"),
        // hyper ignores the length where it does not need it.
        Codec::Refused(BadResponse::ContentLength) => {
            has(b"transfer-encoding")
                || matches!(theirs.status, 101 | 204 | 304)
                || has(b"http/1.1 1")
        }
        Codec::Refused(BadResponse::InterimBody | BadResponse::TooManyInterim) => {
            has(b"http/1.1 10") || has(b"http/1.0 10")
        }
        Codec::Refused(BadResponse::SwitchedProtocol) => has(b" 101"),
        // Trailers that end without CR.
        Codec::BrokenBody => has_bare_line_feed(bytes),
        _ => false,
    }
}

/// The list: where hyper would use a connection again and the codec does not.
fn is_justified_end(read: &Read, bytes: &[u8]) -> bool {
    let text = bytes.to_ascii_lowercase();
    let has = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
    let has_length = has(b"content-length");
    let has_coding = has(b"transfer-encoding");
    // A body is announced where there is none; two headers declare the framing; an option is not ASCII.
    (matches!(read.status, 204 | 304) && (has_length || has_coding))
        || (has_length && has_coding)
        || (has(b"connection:") && !bytes.is_ascii())
}

#[test]
fn responses_are_read_as_hyper_reads_them() {
    let (mut both, mut reusable, mut random) = (0, 0, Random::new(11));
    for _ in 0..MESSAGES {
        let mut bytes = response(&mut random);
        if random.once_in(4) {
            random.mutate(&mut bytes, &[b"\r\n", b"\n", b" ", b":", b"0", b";"], &[]);
        }
        let ends = random.once_in(2);
        let pieces = random.pieces(&bytes);
        let (ours, theirs) = (by_the_codec(&pieces, ends), by_hyper(&pieces, ends));
        let shown = bytes.escape_ascii();
        match (ours, theirs) {
            (Codec::Complete(ours), Some(theirs)) => {
                let fields = |read: &Read| {
                    (
                        read.status,
                        read.content_type.clone(),
                        read.retry_after.clone(),
                        read.body.clone(),
                    )
                };
                assert_eq!(
                    fields(&ours),
                    fields(&theirs),
                    "{shown}, which ends: {ends}"
                );
                both += 1;
                reusable += usize::from(ours.is_reusable);
                if ours.is_reusable {
                    assert!(theirs.is_reusable, "hyper does not reuse {shown}");
                } else if theirs.is_reusable {
                    assert!(is_justified_end(&ours, &bytes), "hyper reuses {shown}");
                }
            }
            (Codec::Complete(ours), None) => {
                panic!(
                    "hyper refuses what the codec accepts: {ours:?} in {shown}, which ends: {ends}"
                )
            }
            (refused, Some(theirs)) => assert!(
                is_justified(&refused, &theirs, &bytes),
                "{refused:?} is not on the list for {theirs:?} in {shown}, which ends: {ends}"
            ),
            (_, None) => {}
        }
    }
    println!("{both} responses were read by both, {reusable} connections are reusable");
    assert!(
        both > 2_000 && reusable > 500,
        "hardly any response is accepted"
    );
}
