//! A place to try a model: the real endpoint, paid from the visitor's own account.

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
    layout::{self, Page, Place},
    query::ReadQuery,
    requests,
    session::SignedIn,
    snippets::FIRST_MODEL,
    words::{about, money},
};
use crate::{
    api::{RequestLog, public::Endpoint},
    gateway::Gateway,
    ledger::{Caller, KeyState},
    net::drain::drain_unread,
    wire::error::GatewayError,
};

/// The key that pays for what is tried here. It is an ordinary one, in the list with the others: what it
/// was used for can be told apart, and disabling it closes the playground. Nobody ever sees its secret.
const KEY_NAME: &str = "Playground";
const TOKEN: &str = "x-form-token";

pub async fn show(State(gateway): State<Arc<Gateway>>, me: SignedIn) -> Result<Page, PortalError> {
    let models = gateway.visible_models(me.account.plan);
    let balances = gateway.ledger.balances(&me.account.id).await?;
    let content = html! {
        h1 { "Playground" }
        p.muted {
            "Answers come from the real endpoint and are paid from your balance of " (about(balances.balance)) "."
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
        p.muted #told role="status" {}
    };
    Ok(layout::page(&me, Place::Playground, "Playground", &content))
}

/// Takes the body of a chat completion and answers it as the endpoint does.
pub async fn run(
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
    // As with the endpoint itself: no new work once it was asked to stop.
    let caller = if gateway.shutdown.is_requested() {
        Err(GatewayError::ShuttingDown)
    } else {
        paying(&gateway, &me).await
    };
    let answered = match caller {
        Ok(caller) => {
            let chat = Endpoint::ChatCompletions;
            chat.serve_caller(&gateway, caller, &log, body).await
        }
        Err(error) => {
            drain_unread(body);
            Err(error)
        }
    };
    answered.unwrap_or_else(GatewayError::into_response)
}

#[derive(Deserialize)]
pub struct Asked {
    request: String,
}

/// What an answer came to, and where its story is.
pub async fn charge(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(asked): ReadQuery<Asked>,
) -> Result<Response, PortalError> {
    let calls = gateway.ledger.find_calls(&asked.request).await?;
    let call = calls.iter().find(|call| call.account_id == me.account.id);
    let (call, charged) = call
        .and_then(|call| Some((call, call.charged?)))
        .ok_or(PortalError::NotFound)?;
    let told = json!({
        "cost": money(charged.cost),
        "path": requests::path(call.id),
    });
    let json = [(CONTENT_TYPE, "application/json")];
    Ok((json, told.to_string()).into_response())
}

async fn paying(gateway: &Gateway, me: &SignedIn) -> Result<Caller, GatewayError> {
    let unavailable = |_| GatewayError::CreditUnavailable;
    let keys = gateway
        .ledger
        .keys(&me.account.id)
        .await
        .map_err(unavailable)?;
    let mut ours = keys
        .into_iter()
        .filter(|key| key.name == KEY_NAME && key.state != KeyState::Deleted);
    let key = if let Some(key) = ours.next() {
        key
    } else {
        let made = gateway.ledger.create_key(&me.account.id, KEY_NAME.into());
        made.await.map_err(unavailable)?.0
    };
    let caller = gateway
        .ledger
        .fresh_caller(key.digest)
        .await
        .map_err(unavailable)?;
    caller.ok_or(GatewayError::InvalidKey)
}
