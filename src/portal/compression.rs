//! Compresses pages and downloads with gzip for browsers that accept it. Assets are compressed once, see `assets.rs`.
//!
//! Pages contain secrets beside texts of their address. The form token is the only one that stays the same over several
//! responses, and each response masks it differently ([`Token::form_token`](super::cookies::Token::form_token)).

use std::{io::Write as _, sync::Arc};

use axum::{
    body::{Body, HttpBody as _},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, header, response::Parts},
    middleware::Next,
    response::Response,
};
use flate2::{Compression, write::GzEncoder};

use crate::gateway::Gateway;

/// Smaller responses fit into a packet as they are.
const LEAST_BYTES: u64 = 1_024;
/// Larger ones are compressed on another thread.
const LONG_BYTES: usize = 64 << 10;

pub(crate) async fn compress(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let accepted = accepts_gzip(request.headers()) && request.method() != Method::HEAD;
    let (mut parts, body) = next.run(request).await.into_parts();
    // A stream has no known size, and is passed on unchanged.
    let Some(size) = body.size_hint().exact().filter(|_| is_text(&parts)) else {
        return Response::from_parts(parts, body);
    };
    vary(&mut parts.headers);
    if !accepted || size < LEAST_BYTES {
        return Response::from_parts(parts, body);
    }
    let limit = usize::try_from(size).unwrap_or(usize::MAX);
    let Ok(plain) = axum::body::to_bytes(body, limit).await else {
        return Response::from_parts(parts, Body::empty());
    };
    let compressed = if plain.len() < LONG_BYTES {
        Some(gzip(&plain, Compression::default()))
    } else {
        let plain = plain.clone();
        let work = move || gzip(&plain, Compression::default());
        gateway.offload.run(work).await
    };
    let Some(compressed) = compressed else {
        return Response::from_parts(parts, Body::from(plain));
    };
    mark(&mut parts.headers, compressed.len());
    Response::from_parts(parts, Body::from(compressed))
}

/// Whether the response is a page or a download that is not compressed yet.
fn is_text(parts: &Parts) -> bool {
    let kind = parts.headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_text = kind.starts_with("text/html") || kind.starts_with("text/csv");
    is_text && !parts.headers.contains_key(header::CONTENT_ENCODING)
}

/// Says that the response depends on `Accept-Encoding`.
pub(crate) fn vary(headers: &mut HeaderMap) {
    headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
}

/// Says that the body is compressed and has this length.
pub(crate) fn mark(headers: &mut HeaderMap, length: usize) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
}

pub(crate) fn gzip(plain: &[u8], level: Compression) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), level);
    let written = encoder.write_all(plain);
    written
        .and_then(|()| encoder.finish())
        .expect("writing to a vector does not fail")
}

/// Whether the request accepts gzip by name, with a weight above zero.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::ACCEPT_ENCODING).iter();
    let texts = lines.filter_map(|line| line.to_str().ok());
    texts.flat_map(|line| line.split(',')).any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let weight = parameters.trim().trim_start_matches(['q', 'Q', '=']);
        name.trim().eq_ignore_ascii_case("gzip")
            && weight.parse().is_ok_and(|weight: f32| weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_where_it_is_named() {
        for (sent, expected) in [
            ("gzip", true),
            ("br, deflate, GZIP;q=0.5", true),
            ("gzip; q=1.0, br", true),
            ("gzip;q=0", false),
            ("gzip;q=0.000", false),
            ("gzip;q=x", false),
            ("br", false),
            ("*", false),
            ("", false),
        ] {
            let value = HeaderValue::from_static(sent);
            let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, value)]);
            assert_eq!(accepts_gzip(&headers), expected, "{sent}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
