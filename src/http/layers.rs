//! What happens around every request.

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures_util::FutureExt as _;

use super::access_log::RequestLog;
use super::{
    extract::{drain_unread, key_presented, known},
    refused::{MAX_HEAD_BYTES, Refused},
};
use crate::{error::GatewayError, gateway::Gateway, ledger::Caller};

/// A panic is ours to explain, in the envelope like any other failure.
pub async fn catch_panics(request: Request, next: Next) -> Response {
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        // The panic hook has logged where it happened.
        Err(_) => GatewayError::Internal.into_response(),
    }
}

/// Answers for the heads that the connection refused; those of HTTP/2 are measured here.
pub async fn refuse_bad_heads(request: Request, next: Next) -> Response {
    if let Some(refused) = Refused::of(&request) {
        return refused.error().into_response();
    }
    let line = request.uri().path().len() + request.uri().query().map_or(0, str::len);
    let headers: usize = request
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    if line + headers > MAX_HEAD_BYTES {
        return Refused::TooLarge.error().into_response();
    }
    next.run(request).await
}

/// Once asked to stop, the gateway takes no new work; it still says how it is.
pub async fn refuse_when_stopping(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    if gateway.shutdown.is_requested() && request.uri().path().starts_with("/v1/") {
        return GatewayError::ShuttingDown.into_response();
    }
    next.run(request).await
}

/// §5 Without a valid key nothing below runs; with one, handlers find the `Caller`.
///
/// It may be one that is remembered: for handlers that confirm what they refuse.
pub async fn authenticate(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let caller = match key_presented(request.headers()) {
        Ok(key) => known(gateway.ledger.caller(key.digest()).await),
        Err(error) => Err(error),
    };
    go_on(caller, request, next).await
}

/// The same, for all others.
pub async fn authenticate_anew(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let caller = match key_presented(request.headers()) {
        Ok(key) => known(gateway.ledger.look(key.digest()).await),
        Err(error) => Err(error),
    };
    go_on(caller, request, next).await
}

async fn go_on(caller: Result<Caller, GatewayError>, mut request: Request, next: Next) -> Response {
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
            Ok(key) => known(gateway.ledger.look(key.digest()).await).map(Some),
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
        log.account(&caller.account_id);
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, body::Body, middleware, routing::get};
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_500_in_the_envelope() {
        async fn panicking() -> Response {
            panic!("on purpose");
        }
        let router = Router::new()
            .route("/", get(panicking))
            .layer(middleware::from_fn(catch_panics));
        let request = Request::new(Body::empty());
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.status(), 500);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["type"], "server_error");
        assert_eq!(body["error"]["code"], "internal_error");
    }
}
