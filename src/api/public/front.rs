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

/// Answers the requests of a listener.
#[derive(Clone)]
pub struct Front {
    billed: Option<Billed>,
    router: Router,
}

#[derive(Clone)]
struct Billed {
    gateway: Arc<Gateway>,
    /// Paths that answer to POST.
    endpoints: &'static [(&'static str, Endpoint)],
}

impl Front {
    /// Without billed endpoints.
    pub fn new(router: Router) -> Self {
        Self {
            billed: None,
            router,
        }
    }

    /// With these endpoints, of which the router knows nothing.
    #[must_use]
    pub fn with_billed(
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

    pub async fn answer(&self, request: Request) -> Response {
        if let Some((gateway, path, endpoint)) = self.billed(&request) {
            let route = Some(Route::Known(path));
            // Both boxed: the inner future is moved about, and the connection would reserve memory for the outer one
            // while a stream goes out.
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
        let (path, endpoint) = billed.endpoints.iter().find(|(known, _)| *known == path)?;
        Some((&billed.gateway, path, *endpoint))
    }
}
