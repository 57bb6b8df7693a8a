//! The way in, before the router.
//!
//! Nearly all requests are for two endpoints. A router and its layers take some allocations and copies for each, so
//! these two are recognised here; what happens to them is the same.

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    http::Method,
    response::{IntoResponse as _, Response},
};
use tower::Service as _;

use super::{
    access_log::{RequestLog, Route, logged},
    chat,
    extract::Asked,
    responses,
};
use crate::gateway::Gateway;

/// Answers the requests of a listener.
#[derive(Clone)]
pub struct Front {
    /// Where the two endpoints are.
    gateway: Option<Arc<Gateway>>,
    router: Router,
}

#[derive(Clone, Copy)]
enum Endpoint {
    ChatCompletions,
    Responses,
}

impl Front {
    /// The public surface.
    pub fn public(gateway: &Arc<Gateway>) -> Self {
        Self {
            gateway: Some(gateway.clone()),
            router: super::router(gateway),
        }
    }

    /// Nothing but a router.
    pub fn of(router: Router) -> Self {
        Self {
            gateway: None,
            router,
        }
    }

    pub async fn answer(&self, request: Request) -> Response {
        let endpoint = Endpoint::of(&request);
        if let (Some(gateway), Some(endpoint)) = (&self.gateway, endpoint) {
            let route = Some(Route::Known(endpoint.path()));
            // Both boxed: the one is moved about, and for the other a connection would keep room while a stream
            // goes out.
            let answering = |request, log| Box::pin(endpoint.answer(gateway, request, log));
            return Box::pin(logged(gateway, route, request, answering)).await;
        }
        // Boxed, so that the two keep no room for it.
        let Ok(response) = Box::pin(self.router.clone().call(request)).await;
        response
    }
}

impl Endpoint {
    fn of(request: &Request) -> Option<Self> {
        if request.method() != Method::POST {
            return None;
        }
        [Self::ChatCompletions, Self::Responses]
            .into_iter()
            .find(|endpoint| request.uri().path() == endpoint.path())
    }

    fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
        }
    }

    async fn answer(self, gateway: &Arc<Gateway>, request: Request, log: RequestLog) -> Response {
        let asked = match Asked::of(gateway, request, log).await {
            Ok(asked) => asked,
            Err(error) => return error.into_response(),
        };
        let Asked { caller, log, body } = asked;
        let answered = match self {
            Self::ChatCompletions => chat::chat_as(gateway, caller, log, body).await,
            Self::Responses => Box::pin(responses::create_as(gateway, caller, log, body)).await,
        };
        answered.into_response()
    }
}
