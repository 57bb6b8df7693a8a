//! All public routes.

use std::sync::Arc;

use axum::{
    Router, middleware,
    routing::{any, get},
};

use super::{billed::Endpoint, front::Front, health, key, models, payments, provider, responses};
use crate::{
    api::{access_log, layers, openapi},
    gateway::Gateway,
};

/// Paths of the billed endpoints, for POST, and of the one that counts what would be billed.
const BILLED: [(&str, Endpoint); 4] = [
    ("/v1/chat/completions", Endpoint::ChatCompletions),
    ("/v1/responses", Endpoint::Responses),
    ("/v1/messages", Endpoint::Messages),
    ("/v1/messages/count_tokens", Endpoint::CountTokens),
];

/// The public listener: the API and, if the portal is enabled, its `pages`.
pub(crate) fn public(gateway: &Arc<Gateway>, pages: Router<Arc<Gateway>>) -> Front {
    let authenticate = middleware::from_fn_with_state(gateway.clone(), layers::authenticate);
    let logged = middleware::from_fn_with_state(gateway.clone(), access_log::log_requests);

    // The router answers other methods of the billed paths.
    let billed = BILLED.iter().fold(Router::new(), |router, (path, _)| {
        router.route(path, any(layers::route_not_found))
    });
    let router = billed
        .route("/v1/responses", get(responses::websocket))
        .route(
            "/v1/responses/{id}",
            get(responses::show)
                .delete(responses::delete)
                .route_layer(authenticate.clone()),
        )
        .route("/v1/key", get(key::show).route_layer(authenticate))
        // Public: a key is optional (§4.4–4.6).
        .route("/v1/models", get(models::list))
        .route("/v1/models/{id}", get(models::one))
        .route("/v1/provider", get(provider::provider))
        .route("/openapi.json", get(openapi::show_public))
        .route("/health", get(health::ready))
        .route("/health/live", get(health::alive))
        .merge(pages)
        .merge(payments::router(gateway))
        // §4.3 Everything else, including other methods of these paths.
        .fallback(layers::route_not_found)
        .method_not_allowed_fallback(layers::route_not_found)
        .with_state(gateway.clone())
        .layer(logged);
    Front::new(router).with_billed(gateway, &BILLED)
}
