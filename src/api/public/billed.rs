//! The endpoints whose calls are billed. They differ in how a body is read and a response is written; everything
//! between is the same.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse as _, Response},
};

use super::{
    chat,
    confirm::{body_of, confirmed},
    responses,
};
use crate::{
    api::{access_log::RequestLog, extract::authenticated},
    gateway::Gateway,
    ledger::Caller,
    wire::error::GatewayError,
};

#[derive(Clone, Copy, Debug)]
pub enum Endpoint {
    ChatCompletions,
    Responses,
}

impl Endpoint {
    /// Answers a request to this endpoint, or says in the envelope why not.
    pub async fn serve(
        self,
        gateway: &Arc<Gateway>,
        request: Request,
        log: RequestLog,
    ) -> Response {
        let served = match authenticated(gateway, request, &log).await {
            Ok((caller, body)) => self.serve_caller(gateway, caller, &log, body).await,
            Err(error) => Err(error),
        };
        served.into_response()
    }

    /// Answers a request of a caller who is already authenticated, by a key or by a session of the portal.
    pub async fn serve_caller(
        self,
        gateway: &Arc<Gateway>,
        caller: Caller,
        log: &RequestLog,
        body: Body,
    ) -> Result<Response, GatewayError> {
        let body = body_of(gateway, &caller, body).await?;
        confirmed(gateway, caller, async |caller| {
            log.caller(&caller);
            match self {
                Self::ChatCompletions => chat::answer(gateway, caller, log, &body).await,
                // Boxed, so that chat completions reserve no memory for it.
                Self::Responses => Box::pin(responses::answer(gateway, caller, log, &body)).await,
            }
        })
        .await
    }
}
