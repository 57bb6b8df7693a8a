//! The billed endpoints. They differ only in how a request body is parsed and a response is written.
//!
//! A refusal or failure is an error envelope.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse as _, Response},
};

use super::{
    caller_body::read_caller_body,
    chat,
    confirm::retry_if_stale,
    messages, responses,
    retries::{RetryHeaders, Sent, Turn, take_turn},
};
use crate::{
    api::{
        Source,
        access_log::RequestLog,
        dialect::Dialect,
        extract::authenticated,
        refusal_limits::{check_account, count_count},
    },
    gateway::Gateway,
    ledger::Caller,
    net::drain::drain_unread,
    wire::{error::GatewayError, messages::NativeHeaders},
};

/// An endpoint whose calls are billed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Endpoint {
    ChatCompletions,
    Responses,
    Messages,
    /// Not billed itself: says how many tokens the input of a message would have.
    CountTokens,
}

/// The headers that a call depends on.
#[derive(Clone, Copy)]
pub(crate) struct CallHeaders<'a> {
    pub native: &'a NativeHeaders,
    /// `None` for a request whose response no other one gets.
    pub retry: Option<&'a RetryHeaders>,
}

impl Endpoint {
    /// Authenticates and serves a request; an error becomes its envelope.
    pub(crate) async fn serve(
        self,
        gateway: &Arc<Gateway>,
        request: Request,
        source: Option<&Source>,
        log: RequestLog,
    ) -> Response {
        let dialect = self.dialect();
        let headers = match dialect {
            Dialect::OpenAi => NativeHeaders::default(),
            Dialect::Messages => NativeHeaders::of(request.headers()),
        };
        let retry = RetryHeaders::of(request.headers());
        let served = match authenticated(gateway, request, source, &log, dialect).await {
            Ok((caller, body)) => {
                let headers = CallHeaders {
                    native: &headers,
                    retry: Some(&retry),
                };
                let serving = self.serve_caller(gateway, caller, &log, headers, body);
                serving.await
            }
            Err(error) => Err(error),
        };
        served.into_response()
    }

    /// The path, which a retry repeats; `None` if there is nothing to repeat.
    fn path(self) -> Option<&'static str> {
        match self {
            Self::ChatCompletions => Some("/v1/chat/completions"),
            Self::Responses => Some("/v1/responses"),
            Self::Messages => Some("/v1/messages"),
            Self::CountTokens => None,
        }
    }

    fn dialect(self) -> Dialect {
        match self {
            Self::ChatCompletions | Self::Responses => Dialect::OpenAi,
            Self::Messages | Self::CountTokens => Dialect::Messages,
        }
    }

    /// Serves a request of a caller that was authenticated by a key or by a portal session.
    pub(crate) async fn serve_caller(
        self,
        gateway: &Arc<Gateway>,
        caller: Caller,
        log: &RequestLog,
        headers: CallHeaders<'_>,
        body: Body,
    ) -> Result<Response, GatewayError> {
        let checked = check_account(gateway, &caller.account_id);
        let checked = match self {
            Self::CountTokens => checked.and_then(|()| count_count(gateway, &caller)),
            _ => checked,
        };
        if let Err(error) = checked {
            drain_unread(body);
            return Err(error);
        }
        let body = read_caller_body(gateway, &caller, log, body).await?;
        let recorded = match headers.retry.zip(self.path()) {
            Some((headers, path)) => {
                let sent = Sent {
                    path,
                    headers,
                    body: &body,
                };
                match take_turn(gateway, &caller, log, sent).await? {
                    Turn::Run(recorded) => recorded,
                    Turn::Other(response) => return Ok(response),
                }
            }
            None => None,
        };
        let (headers, recorded) = (headers.native, &recorded);
        retry_if_stale(gateway, caller, async |caller| {
            log.caller(&caller);
            match self {
                Self::ChatCompletions => {
                    chat::respond(gateway, caller, log, &body, recorded.clone()).await
                }
                // Boxed, so that chat completions reserve no memory for it.
                Self::Responses => {
                    Box::pin(responses::respond(
                        gateway,
                        caller,
                        log,
                        &body,
                        recorded.clone(),
                    ))
                    .await
                }
                Self::Messages => {
                    Box::pin(messages::respond(
                        gateway,
                        caller,
                        log,
                        headers,
                        &body,
                        recorded.clone(),
                    ))
                    .await
                }
                Self::CountTokens => {
                    Box::pin(messages::count(gateway, caller, log, headers, &body)).await
                }
            }
        })
        .await
    }
}
