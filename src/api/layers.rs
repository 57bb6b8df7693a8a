//! Checks around every request: malformed heads, shutdown, panics, authentication and unknown routes.
//!
//! Each of them ends in an error envelope.

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures_util::FutureExt as _;

use super::{
    Source,
    access_log::{RequestLog, loggable, loggable_method},
    dialect::Dialect,
    refusal_limits::{check_account, client_address, count_unknown, find_caller},
};
use crate::{
    gateway::Gateway,
    ledger::Caller,
    net::{
        drain::drain_unread,
        http1::{MAX_HEAD_BYTES, MAX_HEADERS, Refused},
    },
    wire::error::GatewayError,
};

/// Runs the handler, or returns an error response: for a bad head, during shutdown, and after a panic.
pub(crate) async fn handle<F: Future<Output = Response>>(
    gateway: &Gateway,
    request: Request,
    source: Option<&Source>,
    handler: impl FnOnce(Request) -> F,
) -> Response {
    if let Some(refused) = bad_head(&request) {
        let client = client_address(&request, source);
        return count_unknown(gateway, client, head_error(refused)).into_response();
    }
    // During shutdown no new call is accepted; health checks still get a response.
    if gateway.shutdown.is_requested() && request.uri().path().starts_with("/v1/") {
        return GatewayError::ShuttingDown.into_response();
    }
    catch_panics(handler(request)).await
}

/// Turns a panic of the handler into an error envelope with status 500.
async fn catch_panics(handler: impl Future<Output = Response>) -> Response {
    match AssertUnwindSafe(handler).catch_unwind().await {
        Ok(response) => response,
        // The panic hook has logged its location.
        Err(_) => GatewayError::Internal.into_response(),
    }
}

/// Why the head is refused: the reason of the HTTP/1 server, or the size of an HTTP/2 head, which is checked here.
fn bad_head(request: &Request) -> Option<Refused> {
    if let Some(refused) = Refused::of(request) {
        return Some(refused);
    }
    if request.headers().len() > MAX_HEADERS {
        return Some(Refused::TooMany);
    }
    let line = request.uri().path().len() + request.uri().query().map_or(0, str::len);
    let headers: usize = request
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    (line + headers > MAX_HEAD_BYTES).then_some(Refused::TooLarge)
}

/// Requires a valid key (§5) and passes its current `Caller` to the handler, which otherwise does not run.
pub(crate) async fn authenticate(
    State(gateway): State<Arc<Gateway>>,
    mut request: Request,
    next: Next,
) -> Response {
    let client = client_address(&request, None);
    let headers = request.headers();
    let log = log_of(&request);
    let caller = find_caller(&gateway, headers, Dialect::OpenAi, || client, log, true).await;
    let caller = caller.and_then(|caller| {
        log_caller(&request, &caller);
        check_account(&gateway, &caller.account_id).map(|()| caller)
    });
    match caller {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => {
            drain_unread(request.into_body());
            error.into_response()
        }
    }
}

/// Responds with 404 to a route that is not served (§4.3).
pub(crate) async fn route_not_found(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
) -> Response {
    let not_found = no_such_route(&request);
    refuse_route(&gateway, request, not_found).await
}

pub(crate) fn no_such_route(request: &Request) -> GatewayError {
    GatewayError::RouteNotFound {
        method: loggable_method(request.method()).into_owned(),
        path: loggable(request.uri().path()),
    }
}

/// Refuses a request for its method and path; under `/v1` with 401 if there is no valid key.
///
/// The response does not wait for the body, which is drained.
pub(crate) async fn refuse_route(
    gateway: &Gateway,
    request: Request,
    refusal: GatewayError,
) -> Response {
    let client = client_address(&request, None);
    let path = request.uri().path();
    let error = if path == "/v1" || path.starts_with("/v1/") {
        let headers = request.headers();
        let dialect = Dialect::of(&request, None);
        let log = log_of(&request);
        match find_caller(gateway, headers, dialect, || client, log, true).await {
            Ok(caller) => {
                log_caller(&request, &caller);
                let checked = check_account(gateway, &caller.account_id);
                checked.err().unwrap_or(refusal)
            }
            Err(error) => error,
        }
    } else {
        count_unknown(gateway, client, refusal)
    };
    drain_unread(request.into_body());
    error.into_response()
}

/// Adds the account to the request's log line.
fn log_caller(request: &Request, caller: &Caller) {
    if let Some(log) = log_of(request) {
        log.caller(caller);
    }
}

fn log_of(request: &Request) -> Option<&RequestLog> {
    request.extensions().get()
}

/// The error for a refused head.
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
