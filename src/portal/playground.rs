//! The playground: sends prompts to the real chat completions endpoint, charged to the visitor's own account.

use std::sync::Arc;

use axum::{
    Extension,
    body::Body,
    extract::State,
    http::{HeaderMap, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use maud::html;
use serde::Deserialize;
use serde_json::json;

use super::{
    error::PortalError,
    formatting::{money, money_rounded},
    keys::new_key,
    layout::{self, Page, Place},
    query::ReadQuery,
    requests,
    session::SignedIn,
    snippets::FIRST_MODEL,
};
use crate::{
    api::{RequestLog, public::Endpoint},
    gateway::Gateway,
    ledger::Caller,
    net::drain::drain_unread,
    wire::{error::GatewayError, messages::NativeHeaders},
};

/// Name of the API key with which the playground makes its calls. It is an ordinary key in the account's list,
/// so its usage is shown separately and disabling it disables the playground. Its secret is never shown.
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
            "Answers come from the real endpoint and are paid from your balance of " (money_rounded(balances.balance)) "."
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
        Err(GatewayError::ShuttingDown)
    } else {
        paying(&gateway, &me).await
    };
    let answered = match caller {
        Ok(caller) => {
            let chat = Endpoint::ChatCompletions;
            let headers = NativeHeaders::default();
            chat.serve_caller(&gateway, caller, &log, &headers, body)
                .await
        }
        Err(error) => {
            drain_unread(body);
            Err(error)
        }
    };
    answered.unwrap_or_else(GatewayError::into_response)
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
    let call = calls.iter().find(|call| call.account_id == me.account.id);
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

async fn paying(gateway: &Gateway, me: &SignedIn) -> Result<Caller, GatewayError> {
    let unavailable = |_| GatewayError::CreditUnavailable;
    let keys = gateway
        .ledger
        .keys(&me.account.id)
        .await
        .map_err(unavailable)?;
    let key = match keys.into_iter().find(|key| key.name == KEY_NAME) {
        Some(key) => key,
        None => match new_key(gateway, &me.account.id, KEY_NAME).await {
            Ok((key, _)) => key,
            Err(error @ (PortalError::Invalid(_) | PortalError::TooMany { .. })) => {
                return Err(GatewayError::InvalidRequest {
                    message: format!("The playground needs a key of its own. {error}"),
                    param: None,
                });
            }
            Err(_) => return Err(GatewayError::CreditUnavailable),
        },
    };
    let caller = gateway
        .ledger
        .fresh_caller(key.digest)
        .await
        .map_err(unavailable)?;
    caller.ok_or(GatewayError::InvalidKey)
}
