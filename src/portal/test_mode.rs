//! Test mode: payments only pretend, and every page says so.
//!
//! Pages are also made where no gateway is at hand, for example those of errors. So a layer keeps the mode for the task of the
//! request, and the frames of pages read it there.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use maud::{Markup, html};

use crate::{backoffice::payments::Payments, gateway::Gateway};

tokio::task_local! {
    static IS_ON: bool;
}

/// Keeps the mode while the request is handled.
pub(crate) async fn keep(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let is_on = gateway.payments.as_ref().is_some_and(Payments::is_test);
    IS_ON.scope(is_on, next.run(request)).await
}

/// The bar on every page of a gateway whose payments only pretend.
pub(crate) fn notice() -> Markup {
    let is_on = IS_ON.try_with(|is_on| *is_on).unwrap_or(false);
    html! {
        @if is_on { p.test-mode { strong { "Test mode:" } " no card is charged" } }
    }
}
