//! What protects every page: where a form may come from, and what a browser may do with the answer.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{self, HeaderName, HeaderValue, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::error::PortalError;
use crate::{gateway::Gateway, net::drain::drain_unread};

/// Scripts, styles and pictures of ours, nothing inline, and no page of ours inside another's.
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

pub async fn protect(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response =
        if request.method().is_safe() || came_from_us(&request, &gateway.portal.origin) {
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
    // Pages hold what is private; what may be kept says so itself.
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Browsers say where a form was sent from. It must be the host that was asked, or the address that
/// the operator has published.
fn came_from_us<Body>(request: &http::Request<Body>, published: &str) -> bool {
    let headers = request.headers();
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // HTTP/2 has the host in the request's address, and no header for it.
    let asked = request.uri().authority().map(http::uri::Authority::as_str);
    let Some(origin) = text(header::ORIGIN) else {
        return false;
    };
    let host = origin.split_once("://").map(|(_, host)| host);
    origin == published || (host.is_some() && host == asked.or(text(header::HOST)))
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
            came_from_us(&request.body(()).unwrap(), "https://llm.example.com")
        });
        assert_eq!(from_us[0], from_us[1], "whatever the version");
        from_us[0]
    }

    #[test]
    fn a_form_comes_from_the_host_that_was_asked_or_from_the_published_one() {
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
