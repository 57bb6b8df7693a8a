//! Stylesheets, scripts and the logo. They are compiled into the binary and served under names with a digest of
//! their content, so that browsers may cache them forever. They are compressed once, at the first use.

use std::{collections::HashMap, sync::LazyLock};

use axum::{
    body::Body,
    extract::Path,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use flate2::Compression;
use maud::{Markup, PreEscaped};
use sha2::{Digest as _, Sha256};

use super::{compression, error::PortalError};

const ALL: [(&str, &str, &str); 17] = [
    (
        "portal.css",
        "text/css; charset=utf-8",
        include_str!("assets/portal.css"),
    ),
    (
        "pages.css",
        "text/css; charset=utf-8",
        include_str!("assets/pages.css"),
    ),
    (
        "console.css",
        "text/css; charset=utf-8",
        include_str!("assets/console.css"),
    ),
    (
        "documents.css",
        "text/css; charset=utf-8",
        include_str!("assets/documents.css"),
    ),
    (
        "settings.css",
        "text/css; charset=utf-8",
        include_str!("assets/settings.css"),
    ),
    (
        "config.css",
        "text/css; charset=utf-8",
        include_str!("assets/config.css"),
    ),
    (
        "htmx.js",
        "text/javascript; charset=utf-8",
        include_str!("assets/htmx.min.js"),
    ),
    (
        "theme.js",
        "text/javascript; charset=utf-8",
        include_str!("assets/theme.js"),
    ),
    (
        "portal.js",
        "text/javascript; charset=utf-8",
        include_str!("assets/portal.js"),
    ),
    (
        "playground-markdown.js",
        "text/javascript; charset=utf-8",
        include_str!("assets/playground-markdown.js"),
    ),
    (
        "playground-code.js",
        "text/javascript; charset=utf-8",
        include_str!("assets/playground-code.js"),
    ),
    (
        "playground-turns.js",
        "text/javascript; charset=utf-8",
        include_str!("assets/playground-turns.js"),
    ),
    (
        "playground-request.js",
        "text/javascript; charset=utf-8",
        include_str!("assets/playground-request.js"),
    ),
    (
        "playground.js",
        "text/javascript; charset=utf-8",
        include_str!("assets/playground.js"),
    ),
    (
        "playground.css",
        "text/css; charset=utf-8",
        include_str!("assets/playground.css"),
    ),
    (
        "times.js",
        "text/javascript; charset=utf-8",
        include_str!("assets/times.js"),
    ),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

/// The path of each asset, by its file name.
static PATHS: LazyLock<HashMap<&str, String>> = LazyLock::new(|| {
    let path = |(name, _, text): (&'static str, &str, &str)| {
        let digest = Sha256::digest(text.as_bytes());
        let (stem, kind) = name.split_once('.').unwrap_or((name, ""));
        let [a, b, c, d, ..]: [u8; 32] = digest.into();
        let path = format!("/portal/assets/{stem}-{a:02x}{b:02x}{c:02x}{d:02x}.{kind}");
        (name, path)
    };
    ALL.into_iter().map(path).collect()
});

/// Each asset compressed, by its file name.
static COMPRESSED: LazyLock<HashMap<&str, Bytes>> = LazyLock::new(|| {
    let compressed = |(name, _, text): (&'static str, &str, &str)| {
        let gzip = compression::gzip(text.as_bytes(), Compression::best());
        (name, Bytes::from(gzip))
    };
    ALL.into_iter().map(compressed).collect()
});

/// The path under which an asset is served; empty for an unknown name.
pub(crate) fn path(name: &str) -> &'static str {
    PATHS.get(name).map_or("", String::as_str)
}

/// The logo beside the product name, as inline SVG.
pub(crate) fn logo() -> Markup {
    PreEscaped(include_str!("assets/icon.svg").to_owned())
}

pub(crate) async fn serve(Path(name): Path<String>, sent: HeaderMap) -> Response {
    let requested = format!("/portal/assets/{name}");
    let found = ALL.into_iter().find(|(name, ..)| path(name) == requested);
    let Some((name, kind, text)) = found else {
        return PortalError::NotFound.into_response();
    };
    let compressed = COMPRESSED.get(name);
    let compressed = compressed.filter(|_| compression::accepts_gzip(&sent));
    let mut response = match compressed {
        Some(compressed) => {
            let mut response = Response::new(Body::from(compressed.clone()));
            compression::mark(response.headers_mut(), compressed.len());
            response
        }
        None => Response::new(Body::from(text)),
    };
    let headers = response.headers_mut();
    compression::vary(headers);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    headers.insert(header::CACHE_CONTROL, forever);
    response
}
