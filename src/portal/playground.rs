//! The playground: sends prompts to the real chat completions endpoint, charged to the visitor's own account by a key
//! of their own.

use std::sync::Arc;

use axum::{
    Extension,
    body::Body,
    extract::State,
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse as _, Response},
};
use maud::html;
use serde::Deserialize;
use serde_json::json;

use super::{
    error::PortalError,
    formatting::{money, money_rounded},
    keys::create::new_key,
    layout::{self, Page, Place},
    query::ReadQuery,
    requests,
    rights::Right,
    session::SignedIn,
    sight::Sight,
    snippets::FIRST_MODEL,
};
use crate::{
    api::{
        RequestLog,
        public::{CallHeaders, Endpoint},
    },
    gateway::Gateway,
    ledger::{Caller, NewKey},
    net::drain::drain_unread,
    wire::{error::GatewayError, messages::NativeHeaders},
};

/// Name of the API key with which the playground makes a person's calls. It is an ordinary key that belongs to them,
/// so its usage is shown separately and disabling it disables their playground. Its secret is never shown.
const KEY_NAME: &str = "Playground";
const TOKEN: &str = "x-form-token";

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    let models = gateway.visible_models(me.account.plan);
    let balances = gateway.ledger.balances(&me.account.id).await?;
    let content = html! {
        h1 { "Playground" }
        p.muted {
            "Answers come from the real endpoint and are paid from "
            @if me.may(Right::Billing) { "your balance of " (money_rounded(balances.balance)) "." }
            @else { "the account's balance." }
        }
        form.stack #playground data-token=(me.form_token()) {
            label { "Model"
                select name="model" {
                    @for model in &models {
                        option value=(model.id) selected[model.id == FIRST_MODEL] { (model.id) }
                    }
                }
            }
            label { "System " span.muted { "(optional)" }
                textarea name="system" rows="2" {}
            }
            label { "Message"
                textarea name="message" rows="4" required { "Tell me something about toll gates." }
            }
            div.inline {
                button.primary type="submit" { "Send" }
                button.quiet type="button" hidden data-stop { "Stop" }
                button.quiet type="button" hidden data-clear { "New conversation" }
            }
        }
        noscript { p.problem { "The playground needs JavaScript to show an answer while it is written." } }
        section #conversation aria-label="Conversation" aria-live="polite" {}
        p.muted #playground-status role="status" {}
    };
    Ok(layout::page(&me, Place::Playground, "Playground", &content))
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
    // Like the API, start no new calls once shutdown was requested.
    let caller = if gateway.shutdown.is_requested() {
        Err(GatewayError::ShuttingDown.into_response())
    } else {
        paying(&gateway, &me).await
    };
    match caller {
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
            refused
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct ChargeQuery {
    request: String,
}

/// The cost of a completed call and the path of its request details, as JSON. 404 until the call is charged.
pub(crate) async fn charge(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<ChargeQuery>,
) -> Result<Response, PortalError> {
    let calls = gateway.ledger.find_calls(&query.request).await?;
    let sight = Sight::of(&gateway, &me).await?;
    let mut calls = calls.iter();
    let call = calls.find(|call| call.account_id == me.account.id && sight.sees_call(call));
    let (call, charged) = call
        .and_then(|call| Some((call, call.charged?)))
        .ok_or(PortalError::NotFound)?;
    let body = json!({
        "cost": money(charged.cost),
        "path": requests::path(call.id),
    });
    let json = [(CONTENT_TYPE, "application/json")];
    Ok((json, body.to_string()).into_response())
}

/// The caller whose key is that of the person's playground, which is created at their first call.
async fn paying(gateway: &Gateway, me: &SignedIn) -> Result<Caller, Response> {
    let unavailable = |_| GatewayError::CreditUnavailable.into_response();
    let keys = gateway.ledger.keys(&me.account.id).await;
    let mut keys = keys.map_err(unavailable)?.into_iter();
    let member_id = Some(&me.person.id);
    let own = keys.find(|key| key.name == KEY_NAME && key.payer.member_id.as_ref() == member_id);
    let new = NewKey {
        member_id: member_id.cloned(),
        ..KEY_NAME.into()
    };
    let key = match own {
        Some(key) => key,
        None => match new_key(gateway, me, new).await {
            Ok((key, _)) => key,
            Err(error) => return Err(without_key(&error)),
        },
    };
    let caller = gateway.ledger.fresh_caller(key.digest).await;
    let caller = caller.map_err(unavailable)?;
    caller.ok_or_else(|| GatewayError::InvalidKey.into_response())
}

/// The response if the key could not be created.
fn without_key(error: &PortalError) -> Response {
    let refused = GatewayError::InvalidRequest {
        message: format!("The playground needs a key of its own. {error}"),
        param: None,
    };
    match error {
        PortalError::Invalid(_) => refused.into_response(),
        PortalError::TooMany { seconds } => {
            let mut response = refused.into_response();
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            let seconds = HeaderValue::from(*seconds);
            response.headers_mut().insert(RETRY_AFTER, seconds);
            response
        }
        _ => GatewayError::CreditUnavailable.into_response(),
    }
}
