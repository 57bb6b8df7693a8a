//! The entry of a listener: billed endpoints first, then the router.
//!
//! Nearly all requests are for the billed endpoints, and a router with its layers costs allocations and copies for each
//! request. So their paths are compared here; they get the same log line, limits and panic handling as the rest.

use std::sync::Arc;

use axum::{Router, extract::Request, http::Method, response::Response};
use tower::Service as _;

use super::billed::Endpoint;
use crate::{
    api::access_log::{Route, logged},
    gateway::Gateway,
};

/// Serves the requests of a listener.
#[derive(Clone)]
pub struct Front {
    billed: Option<Billed>,
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
            router,
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

    /// The response to a request.
    pub async fn respond(&self, request: Request) -> Response {
        if let Some((gateway, path, endpoint)) = self.billed(&request) {
            let route = Some(Route::Known(path));
            // Both are boxed: the inner future is moved several times, and the connection would reserve memory for the
            // outer one while it sends a stream.
            let serve = |request, log| Box::pin(endpoint.serve(gateway, request, log));
            return Box::pin(logged(gateway, route, request, serve)).await;
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
