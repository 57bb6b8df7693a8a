//! What happens around every request.

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures_util::FutureExt as _;

use super::access_log::RequestLog;
use super::extract::{key_presented, known};
use crate::{
    gateway::Gateway,
    ledger::Caller,
    net::{
        drain::drain_unread,
        http1::{MAX_HEAD_BYTES, MAX_HEADERS, Refused},
    },
    wire::error::GatewayError,
};

/// Answers a request, or says why not: a bad head, a gateway that stops, a mistake of ours.
pub async fn answer<F: Future<Output = Response>>(
    gateway: &Gateway,
    request: Request,
    answering: impl FnOnce(Request) -> F,
) -> Response {
    if let Some(refused) = bad_head(&request) {
        return head_error(refused).into_response();
    }
    // Once asked to stop, the gateway takes no new work; it still says how it is.
    if gateway.shutdown.is_requested() && request.uri().path().starts_with("/v1/") {
        return GatewayError::ShuttingDown.into_response();
    }
    catch_panics(answering(request)).await
}

/// A panic is ours to explain, in the envelope like any other failure.
async fn catch_panics(answering: impl Future<Output = Response>) -> Response {
    match AssertUnwindSafe(answering).catch_unwind().await {
        Ok(response) => response,
        // The panic hook has logged where it happened.
        Err(_) => GatewayError::Internal.into_response(),
    }
}

/// What the connection refused of a head; those of HTTP/2 are measured here.
fn bad_head(request: &Request) -> Option<Refused> {
    if let Some(refused) = Refused::of(request) {
        return Some(refused);
    }
    let line = request.uri().path().len() + request.uri().query().map_or(0, str::len);
    let headers: usize = request
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    (line + headers > MAX_HEAD_BYTES).then_some(Refused::TooLarge)
}

/// §5 Without a valid key nothing below runs; with one, handlers find the `Caller`, as it is now.
pub async fn authenticate(
    State(gateway): State<Arc<Gateway>>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = match key_presented(request.headers()) {
        Ok(key) => known(gateway.ledger.fresh_caller(key.digest()).await),
        Err(error) => Err(error),
    };
    match caller {
        Ok(caller) => {
            note(&request, &caller);
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => {
            drain_unread(request.into_body());
            error.into_response()
        }
    }
}

/// §4.3 What is not served is not found, but under `/v1` only for those who may ask.
///
/// Answers before the body is read: whatever it is, there is nothing here to read it.
pub async fn route_not_found(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let asked = if path == "/v1" || path.starts_with("/v1/") {
        match key_presented(request.headers()) {
            Ok(key) => known(gateway.ledger.fresh_caller(key.digest()).await).map(Some),
            Err(error) => Err(error),
        }
    } else {
        Ok(None)
    };
    if let Ok(Some(caller)) = &asked {
        note(&request, caller);
    }
    let error = asked.err().unwrap_or_else(|| GatewayError::RouteNotFound {
        method: request.method().to_string(),
        path,
    });
    drain_unread(request.into_body());
    error.into_response()
}

/// The request's log line will name the account.
fn note(request: &Request, caller: &Caller) {
    if let Some(log) = request.extensions().get::<RequestLog>() {
        log.caller(caller);
    }
}

/// The error that answers a refused head.
fn head_error(refused: Refused) -> GatewayError {
    let reason = match refused {
        Refused::RequestLine => "its first line is not that of an HTTP/1.1 request",
        Refused::LineEnds => "a line of its head does not end in CR LF",
        Refused::Header => "one of its header lines is malformed",
        Refused::Host => "it must have one Host header",
        Refused::Length => {
            "its length is not clear: Content-Length or Transfer-Encoding is \
             repeated, contradicted or not understood"
        }
        Refused::TooLarge => {
            return GatewayError::HeadersTooLarge {
                limit: MAX_HEAD_BYTES,
            };
        }
        Refused::TooMany => return GatewayError::TooManyHeaders { limit: MAX_HEADERS },
        Refused::TooSlow => return GatewayError::HeadTooSlow,
    };
    GatewayError::MalformedHead { reason }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_500_in_the_envelope() {
        let response = catch_panics(async { panic!("on purpose") }).await;
        assert_eq!(response.status(), 500);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["type"], "server_error");
        assert_eq!(body["error"]["code"], "internal_error");
    }
}
