//! Requests good and bad, cut at every byte.

use axum::http::HeaderValue;
use proptest::prelude::*;

use super::*;

const GOOD: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const POST: &str = "POST /v1/x?y=%20 HTTP/1.1\r\nHost: a\r\n";

/// What is taken of bytes that arrive in these pieces, and what stops it.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, Option<Broken>) {
    let (mut framing, mut held, mut all) = (RequestReader::new(), BytesMut::new(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        all.extend_from_slice(piece);
        loop {
            match framing.next(&mut held) {
                Ok(Next::More) => break,
                Ok(_) => {}
                Err(broken) => {
                    all.truncate(all.len() - held.len());
                    return (all, Some(broken));
                }
            }
        }
    }
    all.truncate(all.len() - held.len());
    (all, None)
}

/// Method, target, headers and body.
type Read = (String, String, Vec<(String, String)>, String);

/// The requests that these bytes hold.
fn requests(bytes: &str) -> Vec<Read> {
    let (mut framing, mut rest) = (RequestReader::new(), BytesMut::from(bytes));
    let mut requests = Vec::new();
    loop {
        match framing.next(&mut rest).unwrap() {
            Next::More => return requests,
            Next::End => {}
            Next::Head(head) => {
                let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
                let (parts, ()) = head.request.into_parts();
                let headers = parts.headers.iter();
                let headers = headers.map(|(name, value)| (name.to_string(), text(value)));
                let (method, target) = (parts.method.to_string(), parts.uri.to_string());
                requests.push((method, target, headers.collect(), String::new()));
            }
            Next::Data(data) => {
                let (.., body) = requests.last_mut().unwrap();
                body.push_str(str::from_utf8(&data).unwrap());
            }
        }
    }
}

#[test]
fn what_is_read_is_what_was_sent() {
    let text = format!(
        "{GOOD}\r\n{POST}X: \t y \r\nx:\r\ncontent-length: 5\r\n\r\nhello\
         {POST}transfer-encoding: chunked\r\n\r\n5;a\r\nhello\r\n1\r\n!\r\n0\r\na: b\r\n\r\n{GOOD}"
    );
    let host = || ("host".to_owned(), "a".to_owned());
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let request = |method: &str, target: &str, headers, body: &str| {
        (
            method.to_owned(),
            target.to_owned(),
            headers,
            body.to_owned(),
        )
    };
    let with_length = vec![
        host(),
        header("x", "y"),
        header("x", ""),
        header("content-length", "5"),
    ];
    let in_chunks = vec![host(), header("transfer-encoding", "chunked")];
    assert_eq!(
        requests(&text),
        [
            request("GET", "/", vec![host()], ""),
            request("POST", "/v1/x?y=%20", with_length, "hello"),
            request("POST", "/v1/x?y=%20", in_chunks, "hello!"),
            request("GET", "/", vec![host()], ""),
        ]
    );
}

#[test]
fn what_nobody_reads_is_not_endless() {
    let head = format!("{POST}transfer-encoding: chunked\r\n\r\n");
    let extension = format!("{head}5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(20_000));
    assert_eq!(read([extension.as_bytes()]).1, Some(Broken::Body));
    let trailers = format!("{head}0\r\n{}\r\n", "x: y\r\n".repeat(5_000));
    assert_eq!(read([trailers.as_bytes()]).1, Some(Broken::Body));
}

#[track_caller]
fn assert_same_in_pieces(bytes: &[u8]) {
    let whole = read([bytes]);
    assert_eq!(read(bytes.chunks(1)), whole, "byte by byte");
    // Long ones are cut around their ends, and here and there in between.
    let step = (bytes.len() / 400).max(1);
    for cut in (0..bytes.len()).step_by(step) {
        let (start, end) = bytes.split_at(cut);
        assert_eq!(read([start, end]), whole, "cut at {cut}");
    }
}

fn headers(count: usize) -> String {
    format!(
        "GET / HTTP/1.1\r\nhost: a\r\n{}\r\n",
        "a: b\r\n".repeat(count - 1)
    )
}

/// A head of exactly so many bytes.
fn head_of(bytes: usize) -> String {
    let empty = "GET / HTTP/1.1\r\nhost: a\r\nx: \r\n\r\n".len();
    let filler = "x".repeat(bytes - empty);
    format!("GET / HTTP/1.1\r\nhost: a\r\nx: {filler}\r\n\r\n")
}

#[test]
fn what_is_well_formed_passes_whole() {
    let long_target = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "a".repeat(60_000));
    let (most_headers, largest) = (headers(100), head_of(MAX_HEAD_BYTES));
    for request in [
        GOOD,
        "GET / HTTP/1.0\r\n\r\n",
        "GET http://a/b HTTP/1.1\r\nhost: a\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n",
        "CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /\"{}|^ HTTP/1.1\r\nhost:\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nx:\r\ny: \t z \t\r\nx-z: \u{fc}\r\n\r\n",
        &format!("{POST}content-length: 5\r\n\r\nhello"),
        &format!("{POST}content-length: 005\r\n\r\nhello"),
        &format!("{POST}CONTENT-LENGTH:5\r\n\r\n\r\n\r\n\n"),
        &format!("{POST}content-length: 0\r\n\r\n"),
        &format!("{POST}transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        &format!(
            "{POST}Transfer-Encoding: Chunked\r\n\r\n00A\r\n\r\n\r\n\r\n\r\n\r\n\r\n0\r\n\r\n"
        ),
        &format!(
            "{POST}transfer-encoding: chunked\r\n\r\n2;a=\"b\"\r\nhi\r\n0;x\r\na: b\r\nc: d\r\n\r\n"
        ),
        &long_target,
        &most_headers,
        &largest,
    ] {
        let twice = format!("\r\n{request}\r\n\r\n{request}{GOOD}");
        let start: String = request.chars().take(80).collect();
        assert_eq!(
            read([twice.as_bytes()]),
            (twice.clone().into_bytes(), None),
            "{start}"
        );
        assert_same_in_pieces(twice.as_bytes());
    }
}

#[test]
fn a_bad_head_stops_the_connection_before_its_first_byte() {
    use Refused::{Header, Host, Length, LineEnds, RequestLine, TooLarge, TooMany};
    let (too_many, too_large) = (headers(101), head_of(MAX_HEAD_BYTES + 1));
    let endless = format!("GET /{}", "a".repeat(MAX_HEAD_BYTES));
    let in_post = |more: &str| format!("{POST}{more}\r\n\r\n");
    for (head, refused) in [
        // Two lengths
        (
            in_post("content-length: 5\r\ntransfer-encoding: chunked"),
            Length,
        ),
        (
            in_post("transfer-encoding: chunked\r\ncontent-length: 5"),
            Length,
        ),
        (in_post("content-length: 5\r\ncontent-length: 5"), Length),
        (in_post("content-length: 5\r\nContent-Length: 6"), Length),
        (
            in_post("transfer-encoding: chunked\r\ntransfer-encoding: chunked"),
            Length,
        ),
        (
            in_post("transfer-encoding: chunked\r\ntransfer-encoding: identity"),
            Length,
        ),
        // Lengths that are none
        (in_post("content-length: 5, 5"), Length),
        (in_post("content-length: +5"), Length),
        (in_post("content-length: -5"), Length),
        (in_post("content-length: 0x5"), Length),
        (in_post("content-length: 5 5"), Length),
        (in_post("content-length:"), Length),
        (in_post("content-length: 18446744073709551614"), Length),
        (in_post("content-length: 99999999999999999999"), Length),
        (in_post("transfer-encoding: gzip"), Length),
        (in_post("transfer-encoding: gzip, chunked"), Length),
        (in_post("transfer-encoding: chunked, chunked"), Length),
        (in_post("transfer-encoding: xchunked"), Length),
        (in_post("transfer-encoding: \"chunked\""), Length),
        (in_post("transfer-encoding:"), Length),
        (
            "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n".into(),
            Length,
        ),
        // Names that another server might take for one of those
        (in_post("content-length : 5"), Header),
        (in_post("transfer-encoding\t: chunked"), Header),
        (in_post("transfer-encoding\0: chunked"), Header),
        (in_post("content length: 5"), Header),
        (in_post(": 5"), Header),
        (in_post("no colon"), Header),
        // Lines that go on, and lines that end otherwise
        (in_post("x: a\r\n b"), Header),
        (in_post("x: a\r\n\tb"), Header),
        (in_post(" x: a"), Header),
        (in_post("x: a\rb: c"), Header),
        (in_post("x: a\r"), Header),
        (in_post("x:\u{c}a"), Header),
        (in_post("transfer-encoding: chunked\r"), Header),
        (in_post("transfer-encoding:\u{c}chunked"), Header),
        (in_post("content-length: 5\u{c}"), Header),
        (in_post("content-length:\r5"), Header),
        (in_post("x: a\0"), Header),
        (in_post("x: a\u{1b}[0m"), Header),
        (in_post("x: a\u{7f}"), Header),
        (in_post("x: a\ncontent-length: 5"), LineEnds),
        ("GET / HTTP/1.1\nhost: a\n\n".into(), LineEnds),
        ("GET / HTTP/1.1\r\nhost: a\n\r\n".into(), LineEnds),
        ("GET / HTTP/1.1\r\nhost: a\r\n\n".into(), LineEnds),
        // First lines
        ("\nGET / HTTP/1.1\r\nhost: a\r\n\r\n".into(), RequestLine),
        ("\rGET / HTTP/1.1\r\nhost: a\r\n\r\n".into(), RequestLine),
        (" GET / HTTP/1.1\r\nhost: a\r\n\r\n".into(), RequestLine),
        ("GET  / HTTP/1.1\r\nhost: a\r\n\r\n".into(), RequestLine),
        ("GET / a HTTP/1.1\r\nhost: a\r\n\r\n".into(), RequestLine),
        ("GET /\t HTTP/1.1\r\nhost: a\r\n\r\n".into(), RequestLine),
        ("GET /\0 HTTP/1.1\r\nhost: a\r\n\r\n".into(), RequestLine),
        ("GET a/b HTTP/1.1\r\nhost: a\r\n\r\n".into(), RequestLine),
        ("GET / HTTP/1.1 \r\nhost: a\r\n\r\n".into(), RequestLine),
        ("GET / HTTP/1.2\r\nhost: a\r\n\r\n".into(), RequestLine),
        ("GET / http/1.1\r\nhost: a\r\n\r\n".into(), RequestLine),
        ("GET / HTTP/2.0\r\nhost: a\r\n\r\n".into(), RequestLine),
        ("GET /\r\n\r\n".into(), RequestLine),
        ("G(T / HTTP/1.1\r\nhost: a\r\n\r\n".into(), RequestLine),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\rx".into(), RequestLine),
        ("\u{16}\u{3}\u{1}\u{2}".into(), RequestLine),
        // Hosts
        ("GET / HTTP/1.1\r\n\r\n".into(), Host),
        ("GET / HTTP/1.1\r\nhost: a\r\nHOST: a\r\n\r\n".into(), Host),
        ("GET / HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n".into(), Host),
        // Sizes
        (too_many, TooMany),
        (too_large, TooLarge),
        (endless, TooLarge),
    ] {
        let broken = Some(Broken::Head(refused));
        let start: String = head.chars().take(80).collect();
        assert_eq!(read([head.as_bytes()]), (Vec::new(), broken), "{start}");
        let after_good = format!("{POST}content-length: 2\r\n\r\nhi\r\n{head}");
        let (passed, stopped) = read([after_good.as_bytes()]);
        assert_eq!(stopped, broken, "{start}");
        assert_eq!(passed.len(), after_good.len() - head.len(), "{start}");
        assert_same_in_pieces(head.as_bytes());
        assert_same_in_pieces(after_good.as_bytes());
    }
}

#[test]
fn a_body_that_breaks_its_frame_ends_there() {
    for (good, bad) in [
        ("", "\r\n"),
        ("", "x"),
        ("", " 5\r\nhello"),
        ("", "-5\r\nhello"),
        ("", ";a\r\n"),
        ("0", "x5\r\nhello"),
        ("5", "\nhello"),
        ("5", " \r\nhello"),
        ("5\r", "hello"),
        ("5;a", "\nhello"),
        ("5;a", "\0\r\nhello"),
        ("5\r\nhello", "!\r\n"),
        ("5\r\nhello", "\n0\r\n\r\n"),
        ("5\r\nhello\r", "0"),
        ("5\r\nhello\r\n", "\r\n"),
        ("FFFFFFFFFFFFFFFF", "0\r\n"),
        ("0000000000000000", "0\r\n"),
        ("0\r\n", "\nGET / HTTP/1.1\r\n"),
        ("0\r\n\r", "x"),
        ("0\r\na: b", "\nc: d\r\n\r\n"),
        ("0\r\na: b\r", "c"),
    ] {
        let head = format!("{POST}transfer-encoding: chunked\r\n\r\n");
        let (request, expected) = (format!("{head}{good}{bad}"), format!("{head}{good}"));
        let (passed, broken) = read([request.as_bytes()]);
        assert_eq!(broken, Some(Broken::Body), "{good}{bad}");
        assert_eq!(String::from_utf8(passed).unwrap(), expected, "{good}{bad}");
        assert_same_in_pieces(request.as_bytes());
    }
}

#[test]
fn a_head_is_held_back_until_it_is_whole() {
    let bytes = GOOD.as_bytes();
    for end in 0..bytes.len() {
        assert_eq!(read([&bytes[..end]]), (Vec::new(), None), "{end}");
    }
    assert_eq!(read([bytes]).0, bytes);
}

proptest! {
    /// Bytes of all kinds that look like requests here and there, in pieces of all sizes.
    #[test]
    fn how_bytes_are_cut_makes_no_difference(
        words in prop::collection::vec(prop::sample::select(vec![
            GOOD, POST, "\r\n", "\n", "\r", " ", "content-length: 3\r\n", "0\r\n\r\n", "3\r\nabc\r\n",
            "transfer-encoding: chunked\r\n", "abc", ":", "\0", "PRI * HTTP/2.0\r\n\r\n", "a: b\r\n",
        ]), 0..12),
        cuts in prop::collection::vec(1..40_usize, 0..40),
    ) {
        let bytes = words.concat().into_bytes();
        let mut rest = bytes.as_slice();
        let mut pieces = Vec::new();
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces.push(rest);
        prop_assert_eq!(read(pieces), read([bytes.as_slice()]));
    }
}
