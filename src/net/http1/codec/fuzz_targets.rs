//! Properties of the codec that hold for any bytes. They panic if one does not hold.
//!
//! Each returns a number that stands for what was found in the bytes, so that the driver can keep inputs that show it
//! something new.

use axum::http::{HeaderMap, Method, header};
use bytes::BytesMut;

use super::{
    BodyFraming, Dialect, Next, NextOfBody, RequestReader, ResponseHead, ResponseReader,
    limits::{MAX_HEAD_BYTES, MAX_HEADERS},
};
use crate::base::mutation::Random;

/// The requests in the bytes: how they are split makes no difference, and each can be written and read again.
pub(crate) fn requests(bytes: &[u8]) -> u64 {
    let whole = read_requests(&[bytes]);
    let split = read_requests(&Random::of(bytes).pieces(bytes));
    assert_eq!(whole, split, "{}", bytes.escape_ascii());
    for request in whole.all.iter().filter(|request| request.is_complete) {
        check_request(request);
    }
    let last = whole.all.last();
    let framing = last.map_or(0, |last| {
        1 + u64::from(last.is_complete) + 2 * log(last.body.len())
    });
    let refused = whole.broken.map_or(0, |broken| hash(&broken));
    framing ^ (log(whole.all.len()) << 8) ^ (refused << 12)
}

#[derive(Debug, Default, PartialEq)]
struct Requests {
    all: Vec<Request>,
    broken: Option<String>,
    unread: usize,
}

#[derive(Debug, PartialEq)]
struct Request {
    method: Method,
    headers: HeaderMap,
    keeps_alive: bool,
    body: Vec<u8>,
    is_complete: bool,
}

fn read_requests(pieces: &[&[u8]]) -> Requests {
    let (mut reader, mut buffer) = (RequestReader::new(), BytesMut::new());
    let mut found = Requests::default();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        if found.broken.is_some() {
            continue;
        }
        loop {
            match reader.next(&mut buffer) {
                Ok(Next::Head(head)) => {
                    let keeps_alive = head.keeps_alive();
                    let (parts, ()) = head.request.into_parts();
                    found.all.push(Request {
                        method: parts.method,
                        headers: parts.headers,
                        keeps_alive,
                        body: Vec::new(),
                        is_complete: false,
                    });
                }
                Ok(Next::Data(data)) => {
                    assert!(!data.is_empty(), "an empty piece of a body");
                    let current = found.all.last_mut().expect("a head before a body");
                    current.body.extend_from_slice(&data);
                }
                Ok(Next::End) => {
                    let current = found.all.last_mut().expect("a head before an end");
                    current.is_complete = true;
                }
                Ok(Next::More) => break,
                Err(broken) => {
                    found.broken = Some(format!("{broken:?}"));
                    break;
                }
            }
        }
    }
    found.unread = buffer.len();
    found
}

/// Writes an accepted request in another form, in which it must be the same request.
fn check_request(request: &Request) {
    assert!(request.headers.len() <= MAX_HEADERS);
    let framing = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
    let announced: usize = framing
        .iter()
        .map(|name| request.headers.get_all(name).iter().count())
        .sum();
    assert!(announced <= 1, "two headers declare the framing");
    let mut text = format!("{} /x HTTP/1.1\r\n", request.method).into_bytes();
    let mut rest = HeaderMap::new();
    for (name, value) in &request.headers {
        let is_line = !value.as_bytes().iter().any(|byte| b"\r\n\0".contains(byte));
        assert!(is_line, "a header value ends its line");
        if !framing.contains(name) {
            rest.append(name, value.clone());
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(b":");
            text.extend_from_slice(value.as_bytes());
            text.extend_from_slice(b"\r\n");
        }
    }
    if !rest.contains_key(header::HOST) {
        return; // HTTP/1.0, of which this form would be another request
    }
    text.extend_from_slice(format!("content-length: {}\r\n\r\n", request.body.len()).as_bytes());
    text.extend_from_slice(&request.body);
    if text.len() - request.body.len() > MAX_HEAD_BYTES || rest.len() == MAX_HEADERS {
        return; // it grew by its own length header
    }
    let mut again = read_requests(&[&text]);
    assert_eq!((again.all.len(), again.unread), (1, 0), "{request:?}");
    let again = again.all.remove(0);
    let mut headers = again.headers;
    headers.remove(header::CONTENT_LENGTH);
    assert_eq!((&again.method, &headers), (&request.method, &rest));
    assert_eq!(again.body, request.body);
}

/// The response in the bytes: how they are split makes no difference, and nothing of it is lost.
pub(crate) fn responses(bytes: &[u8]) -> u64 {
    let whole = read_response(&[bytes]);
    let split = read_response(&Random::of(bytes).pieces(bytes));
    assert_eq!(whole, split, "{}", bytes.escape_ascii());
    let Some(Response {
        head, body, end, ..
    }) = whole
    else {
        return 0;
    };
    assert!(
        (200..=999).contains(&head.status),
        "no status of a response"
    );
    if matches!(head.status, 204 | 304) {
        assert!(body.is_empty(), "a body where there is none");
    }
    let shown = u64::from(head.keep_alive) + 2 * u64::from(head.retry_after.is_some());
    hash(&end) ^ (shown << 4) ^ (log(body.len()) << 8) ^ (u64::from(head.status) << 16)
}

#[derive(Debug, PartialEq)]
struct Response {
    head: ResponseHead,
    body: Vec<u8>,
    end: &'static str,
    unread: usize,
}

/// `None` if there is no head, or not yet.
fn read_response(pieces: &[&[u8]]) -> Option<Response> {
    let (mut reader, mut buffer) = (ResponseReader::default(), BytesMut::new());
    let mut found: Option<Response> = None;
    for piece in pieces {
        buffer.extend_from_slice(piece);
        if found.is_none() {
            found = reader.next(&mut buffer).ok()?.map(|head| Response {
                head,
                body: Vec::new(),
                end: "more",
                unread: 0,
            });
        }
        let Some(response) = found.as_mut().filter(|response| response.end == "more") else {
            continue;
        };
        response.end = loop {
            match response.head.framing.next(&mut buffer) {
                Ok(NextOfBody::Data(data)) => response.body.extend_from_slice(&data),
                Ok(NextOfBody::More) => break "more",
                Ok(NextOfBody::End) => break "end",
                Err(_) => break "broken",
            }
        };
    }
    found.map(|response| Response {
        unread: buffer.len(),
        ..response
    })
}

/// A chunked body: how it is split makes no difference, and a body of the strict dialect is the same in the other.
pub(crate) fn chunks(bytes: &[u8]) -> u64 {
    let mut random = Random::of(bytes);
    let [strict, lenient] = [Dialect::Strict, Dialect::Lenient].map(|dialect| {
        let whole = read_body(dialect, &[bytes]);
        let split = read_body(dialect, &random.pieces(bytes));
        assert_eq!(whole, split, "{}", bytes.escape_ascii());
        whole
    });
    if strict.1 == "end" {
        assert_eq!(strict, lenient, "{}", bytes.escape_ascii());
    }
    hash(&strict.1) ^ (hash(&lenient.1) << 4) ^ (log(lenient.0.len()) << 8)
}

/// The data, how it ended, and how many bytes are left.
fn read_body(dialect: Dialect, pieces: &[&[u8]]) -> (Vec<u8>, &'static str, usize) {
    let (mut framing, mut buffer) = (BodyFraming::chunked(dialect), BytesMut::new());
    let (mut body, mut end) = (Vec::new(), "more");
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while end == "more" {
            match framing.next(&mut buffer) {
                Ok(NextOfBody::Data(data)) => body.extend_from_slice(&data),
                Ok(NextOfBody::More) => break,
                Ok(NextOfBody::End) => end = "end",
                Err(_) => end = "broken",
            }
        }
    }
    (body, end, buffer.len())
}

/// A small number for anything that can be printed.
fn hash(value: &impl std::fmt::Debug) -> u64 {
    Random::of(format!("{value:?}").as_bytes()).next() & 0xffff
}

/// The magnitude of a count, so that similar inputs count as one.
fn log(count: usize) -> u64 {
    u64::from(usize::BITS - count.leading_zeros())
}
