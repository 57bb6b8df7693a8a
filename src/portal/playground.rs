//! The playground: sends prompts to the real chat completions endpoint, charged to the visitor's own account by a key
//! of their own.
//!
//! With scripts, answers are streamed (`run`) and their charges are looked up afterwards (`charge`). Without, the form is
//! submitted and its response is a page with the answer (`answer`).

mod answer;
mod charge;
mod fields;
mod key;
mod page;

pub(crate) use self::{answer::answer, charge::charge, key::is_playground_key};

use std::sync::Arc;

use axum::{
    Extension,
    body::Body,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};

use super::{error::PortalError, layout::Page, session::SignedIn};
use crate::{
    api::{
        RequestLog,
        public::{CallHeaders, Endpoint},
    },
    gateway::Gateway,
    net::drain::drain_unread,
    wire::{error::GatewayError, messages::NativeHeaders},
};

const TOKEN: &str = "x-form-token";

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    page::page(&gateway, &me, &page::View::default()).await
}

/// Takes a chat completions body and responds as the endpoint does.
pub(crate) async fn run(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    headers: HeaderMap,
    Extension(log): Extension<RequestLog>,
    body: Body,
) -> Response {
    let sent = headers.get(TOKEN).and_then(|value| value.to_str().ok());
    if let Err(error) = me.check(sent) {
        drain_unread(body);
        return error.into_response();
    }
    match key::paying(&gateway, &me, &log).await {
        Ok(caller) => {
            log.caller(&caller);
            let chat = Endpoint::ChatCompletions;
            let native = NativeHeaders::default();
            let headers = CallHeaders {
                native: &native,
                retry: None,
            };
            let serving = chat.serve_caller(&gateway, caller, &log, headers, body);
            serving.await.unwrap_or_else(GatewayError::into_response)
        }
        Err(refused) => {
            drain_unread(body);
            refused.into_response()
        }
    }
}
