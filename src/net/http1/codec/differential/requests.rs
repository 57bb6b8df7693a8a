//! Requests, several on one connection.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use axum::http::{HeaderMap, Method, Request, Response, Uri, header};
use bytes::BytesMut;
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};

use super::{MESSAGES, Peer, has_bare_line_feed, polls, put_headers_and_body, run};
use crate::{
    base::mutation::Random,
    net::http1::{
        Refused,
        codec::{Broken, Next, RequestReader},
    },
};

/// A request that was read to its end.
#[derive(Debug, PartialEq)]
struct Read {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// The requests that the codec reads, up to one after which the connection closes, and the reason if it refuses one.
fn by_the_codec(pieces: &[&[u8]]) -> (Vec<Read>, Option<Broken>) {
    let (mut reader, mut buffer) = (RequestReader::new(), BytesMut::new());
    let (mut complete, mut current, mut keeps_alive) = (Vec::new(), None, true);
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match reader.next(&mut buffer) {
                Ok(Next::More) => break,
                Ok(Next::Head(head)) => {
                    keeps_alive = head.keeps_alive();
                    let (parts, ()) = head.request.into_parts();
                    current = Some(Read {
                        method: parts.method,
                        uri: parts.uri,
                        headers: parts.headers,
                        body: Vec::new(),
                    });
                }
                Ok(Next::Data(data)) => {
                    current.as_mut().unwrap().body.extend_from_slice(&data);
                }
                Ok(Next::End) => {
                    complete.extend(current.take());
                    if !keeps_alive {
                        return (complete, None);
                    }
                }
                Err(broken) => return (complete, Some(broken)),
            }
        }
    }
    (complete, None)
}

/// The requests that hyper reads to their end.
fn by_hyper(pieces: &[&[u8]]) -> Vec<Read> {
    let complete = Arc::new(Mutex::new(Vec::new()));
    let handler = service_fn(|request: Request<Incoming>| {
        let complete = complete.clone();
        async move {
            let (parts, body) = request.into_parts();
            if let Ok(body) = body.collect().await {
                complete.lock().unwrap().push(Read {
                    method: parts.method,
                    uri: parts.uri,
                    headers: parts.headers,
                    body: body.to_bytes().to_vec(),
                });
            }
            Ok::<_, Infallible>(Response::new(Empty::<bytes::Bytes>::new()))
        }
    });
    let connection = http1::Builder::new()
        .half_close(true)
        .serve_connection(Peer::client(pieces), handler);
    let _ = run(connection, polls(pieces));
    std::mem::take(&mut *complete.lock().unwrap())
}

/// One request, and usually a valid one.
fn request(random: &mut Random) -> Vec<u8> {
    let mut bytes = random
        .pick(&[
            &b"GET / HTTP/1.1\r\n"[..],
            b"POST /v1/chat/completions?a=%20 HTTP/1.1\r\n",
            b"DELETE /\"{}|^ HTTP/1.1\r\n",
            b"OPTIONS * HTTP/1.1\r\n",
            b"GET http://a/b HTTP/1.1\r\n",
            b"PATCH-X /x HTTP/1.1\r\n",
            b"GET /x HTTP/1.0\r\n",
        ])
        .to_vec();
    if random.once_in(15) {
        bytes = random
            .pick(&[
                &b"GET  / HTTP/1.1\r\n"[..],
                b"GET / HTTP/1.2\r\n",
                b"GET / http/1.1\r\n",
                b"GET /\r\n",
                b"GET /\x7f HTTP/1.1\r\n",
                b"GET /\xe9 HTTP/1.1\r\n",
                b"G(T / HTTP/1.1\r\n",
                b"GET / HTTP/1.1\n",
                b"\r\n\r\nGET / HTTP/1.1\r\n",
                b"\nGET / HTTP/1.1\r\n",
            ])
            .to_vec();
    }
    if !random.once_in(20) {
        bytes.extend_from_slice(b"Host: a\r\n");
    }
    put_headers_and_body(&mut bytes, random, 4);
    bytes
}

/// The list: what the codec refuses although hyper accepts it, with what must be in the bytes to justify it.
fn is_justified(broken: Broken, bytes: &[u8]) -> bool {
    let text = bytes.to_ascii_lowercase();
    let has = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
    let bare_line_feed = || has_bare_line_feed(bytes);
    match broken {
        // A line that ends without CR.
        Broken::Head(Refused::LineEnds) => bare_line_feed(),
        // No Host header, or more than one.
        Broken::Head(Refused::Host) => true,
        // More than one header that declares the framing, or one that is not a plain number or `chunked`.
        Broken::Head(Refused::Length) => has(b"content-length") || has(b"transfer-encoding"),
        // Line ends before the request line that are not CRLF.
        Broken::Head(Refused::RequestLine) => bare_line_feed() || has(b"\r"),
        // Spaces after a chunk size, control characters in an extension, and trailers that end without CR.
        Broken::Body => {
            bare_line_feed()
                || has(b" \r\n")
                || has(b" \t")
                || has(b"\x01")
                || has(b"\t;")
                || has(b" ;")
        }
        Broken::Head(_) => false,
    }
}

/// Compares one connection, and returns how many requests both have read.
fn compare(bytes: &[u8], pieces: &[&[u8]]) -> usize {
    let (ours, broken) = by_the_codec(pieces);
    let theirs = by_hyper(pieces);
    let shown = bytes.escape_ascii();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        // hyper keeps one of several equal lengths; the codec has refused them.
        assert_eq!(ours, theirs, "{shown}");
        let framing = ours.headers.get(header::CONTENT_LENGTH);
        let length = framing.and_then(|length| length.to_str().ok()?.parse().ok());
        assert!(length.is_none_or(|length: usize| length == ours.body.len()));
    }
    if ours.len() > theirs.len() {
        let more = &ours[theirs.len()];
        panic!("hyper refuses what the codec accepts: {more:?} in {shown}");
    }
    if theirs.len() > ours.len() {
        let more = &theirs[ours.len()];
        let Some(broken) = broken else {
            panic!("hyper reads a request that the codec does not find: {more:?} in {shown}");
        };
        assert!(
            is_justified(broken, bytes),
            "{broken:?} is not on the list for {more:?} in {shown}"
        );
    }
    ours.len()
}

#[test]
fn requests_are_read_as_hyper_reads_them() {
    let (mut both, mut random) = (0, Random::new(7));
    for number in 0..MESSAGES {
        let mut bytes = request(&mut random);
        if random.once_in(3) {
            bytes.extend(request(&mut random));
        }
        if random.once_in(4) {
            random.mutate(&mut bytes, &[b"\r\n", b"\n", b" ", b":", b"0", b";"], &[]);
        }
        // Shows whether the end of the last request was found at the same position.
        bytes.extend_from_slice(b"GET /last HTTP/1.1\r\nHost: a\r\n\r\n");
        // These end HTTP on a connection of hyper's.
        let text = bytes.to_ascii_lowercase();
        if text
            .windows(7)
            .any(|word| word == b"connect" || word == b"upgrade")
            && !text.windows(11).any(|word| word == b"connection:")
        {
            continue;
        }
        let pieces = random.pieces(&bytes);
        both += compare(&bytes, &pieces);
        assert!(
            number < 2_000 || both > 1_000,
            "hardly any request is accepted"
        );
    }
    println!("{both} requests were read by both");
}
