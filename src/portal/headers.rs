//! Security of every portal page: refuses changes that other sites submit (CSRF), and sets the security headers
//! of responses.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{self, HeaderName, HeaderValue, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::error::PortalError;
use crate::{gateway::Gateway, net::drain::drain_unread};

/// Allows scripts, styles and images from our own origin only, nothing inline, and no embedding in frames.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const FIXED: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=()",
    ),
];

pub(crate) async fn protect(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response =
        if request.method().is_safe() || is_from_own_page(&request, &gateway.portal.origin) {
            next.run(request).await
        } else {
            drain_unread(request.into_body());
            PortalError::Foreign.into_response()
        };
    let headers = response.headers_mut();
    for (name, value) in FIXED {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if gateway.portal.is_secure() {
        let year = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, year);
    }
    // Pages contain private data and must not be cached. Assets set their own `Cache-Control`.
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Whether the `Origin` header names the host to which the request was sent, or the origin that the operator
/// has published.
fn is_from_own_page<Body>(request: &http::Request<Body>, published: &str) -> bool {
    let headers = request.headers();
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // HTTP/2 requests carry the host in the URI instead of a `Host` header.
    let requested = request.uri().authority().map(http::uri::Authority::as_str);
    let Some(origin) = text(header::ORIGIN) else {
        return false;
    };
    let host = origin.split_once("://").map(|(_, host)| host);
    origin == published || (host.is_some() && host == requested.or(text(header::HOST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(origin: Option<&'static str>, host: &'static str) -> bool {
        let http1 = http::Request::builder().header(header::HOST, host);
        let http2 = http::Request::builder().uri(format!("http://{host}/portal/keys"));
        let from_us = [http1, http2].map(|mut request| {
            if let Some(origin) = origin {
                request = request.header(header::ORIGIN, origin);
            }
            is_from_own_page(&request.body(()).unwrap(), "https://llm.example.com")
        });
        assert_eq!(from_us[0], from_us[1], "HTTP/1.1 and HTTP/2");
        from_us[0]
    }

    #[test]
    fn origin_must_be_the_requested_host_or_the_published_origin() {
        assert!(from(Some("http://localhost:8080"), "localhost:8080"));
        assert!(from(Some("https://llm.example.com"), "10.0.0.1:8080"));
        assert!(!from(Some("https://evil.example"), "localhost:8080"));
        assert!(!from(Some("http://localhost:8081"), "localhost:8080"));
        assert!(!from(
            Some("http://localhost:8080.evil.example"),
            "localhost:8080"
        ));
        assert!(!from(Some("null"), "localhost:8080"));
        assert!(!from(None, "localhost:8080"));
    }
}
