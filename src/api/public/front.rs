//! The entry of a listener: billed endpoints first, then the router.
//!
//! Nearly all requests are for the billed endpoints, and a router with its layers costs allocations and copies for each
//! request. So their paths are compared here; they get the same log line, limits and panic handling as the rest.
//!
//! In an overload they are refused here, before their key and body are looked at: a refusal must cost less than a call.

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    http::Method,
    response::{IntoResponse as _, Response},
};
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use tower::Service as _;

use super::billed::Endpoint;
use crate::{
    api::{
        Peer, Source,
        access_log::{Listener, Route, logged},
    },
    gateway::Gateway,
    net::{drain::drain_unread, lag},
    wire::error::GatewayError,
};

/// Serves the requests of a listener.
#[derive(Clone)]
pub struct Front {
    billed: Option<Billed>,
    refuses_calls: bool,
    router: Router,
}

#[derive(Clone)]
struct Billed {
    gateway: Arc<Gateway>,
    /// Paths that are served for POST.
    endpoints: &'static [(&'static str, Endpoint)],
}

impl Front {
    /// A front without billed endpoints.
    pub(crate) fn new(router: Router) -> Self {
        Self {
            billed: None,
            refuses_calls: false,
            router,
        }
    }

    /// Refuses billed requests as in an overload, if `refuse`; the rest is served.
    #[must_use]
    pub(crate) fn refusing_calls(self, refuse: bool) -> Self {
        Self {
            refuses_calls: refuse,
            ..self
        }
    }

    /// Adds billed endpoints, which are not in the router.
    #[must_use]
    pub(crate) fn with_billed(
        self,
        gateway: &Arc<Gateway>,
        endpoints: &'static [(&'static str, Endpoint)],
    ) -> Self {
        let gateway = gateway.clone();
        Self {
            billed: Some(Billed { gateway, endpoints }),
            ..self
        }
    }

    /// The response to a request without a connection, for tests and benchmarks. It is not counted by address.
    pub async fn respond(&self, request: Request) -> Response {
        self.respond_to(request, None).await
    }

    /// The response to a request of a connection.
    pub(crate) async fn respond_to(
        &self,
        mut request: Request,
        source: Option<&Source>,
    ) -> Response {
        if let Some((gateway, path, endpoint)) = self.billed(&request) {
            let route = (Listener::Public, Some(Route::Known(path)));
            if self.refuses_calls || is_overloaded(gateway) {
                let refuse = |request, _| std::future::ready(refuse(request));
                return Box::pin(logged(gateway, route, request, source, refuse)).await;
            }
            // Both are boxed: the inner future is moved several times, and the connection would reserve memory for the
            // outer one while it sends a stream.
            let serve = |request, log| Box::pin(endpoint.serve(gateway, request, source, log));
            return Box::pin(logged(gateway, route, request, source, serve)).await;
        }
        // Only the public listener counts by address; the requests above compute it when it is needed.
        if self.billed.is_some()
            && let Some(source) = source
        {
            let client = Peer(source.client(request.headers()));
            request.extensions_mut().insert(client);
        }
        // Boxed, so that billed requests reserve no memory for it.
        let Ok(response) = Box::pin(self.router.clone().call(request)).await;
        response
    }

    fn billed(&self, request: &Request) -> Option<(&Arc<Gateway>, &'static str, Endpoint)> {
        let billed = self.billed.as_ref()?;
        if request.method() != Method::POST {
            return None;
        }
        let path = request.uri().path();
        let (path, endpoint) = billed
            .endpoints
            .iter()
            .find(|(billed, _)| *billed == path)?;
        Some((&billed.gateway, path, *endpoint))
    }
}

/// Whether there are more requests than can be served: on this thread, or in the queue for the shared stores.
fn is_overloaded(gateway: &Gateway) -> bool {
    let admissions = gateway.admissions.as_ref();
    !lag::can_serve_request() || admissions.is_some_and(|admissions| admissions.is_full())
}

fn refuse(request: Request) -> Response {
    let mut body = request.into_body();
    // Most bodies have arrived with their head. Only the rest of others is read, by a task.
    let _ = body.frame().now_or_never();
    drain_unread(body);
    GatewayError::Overloaded.into_response()
}
