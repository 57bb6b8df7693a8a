//! `/v1/responses` (SPEC §4.2): translated onto chat completions, and kept for the next turn.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Extension,
    body::Body,
    extract::{Path, State},
    http::Uri,
    response::Response,
};

use super::{
    access_log::RequestLog,
    call::Permitted,
    extract::{Authenticated, read_body},
    json_response,
};
use crate::{
    auth::random_id,
    chat::{Disorder, check_order},
    conversations::Record,
    error::GatewayError,
    gateway::Gateway,
    metered::{Form, now},
    wire::{
        chat::Message,
        responses::{
            Input, Item, NewResponse, ResponsesRequest, conversation, deleted, response_of_item,
        },
    },
};

pub async fn create(
    State(gateway): State<Arc<Gateway>>,
    Authenticated(caller): Authenticated,
    Extension(log): Extension<RequestLog>,
    body: Body,
) -> Result<Response, GatewayError> {
    // The body is JSON of the right shape.
    let body = read_body(body, gateway.max_body_bytes).await?;
    let mut request = ResponsesRequest::parse(&body)?;
    // §3.3 The model is one this account may use.
    let permitted = Permitted::check(&gateway, &caller, &mut request.chat, &log)?;
    // §4.2 What it goes on from.
    let mut stored = Stored::of(&gateway, &caller.account_id);
    let earlier = match &request.previous_response_id {
        Some(id) => stored.conversation(id).await?,
        None => Vec::new(),
    };
    let items = stored
        .with_references(std::mem::take(&mut request.items))
        .await?;
    let messages = conversation(earlier, items);
    check_order(&messages).map_err(Disorder::of_items)?;
    // It is answered as a chat completion is, in other words.
    let input = serde_json::to_string(&messages).unwrap_or_default();
    let response = NewResponse {
        id: random_id("resp_"),
        created_at: now(),
        echo: std::mem::take(&mut request.echo),
    };
    let form = Form::Response {
        response: Box::new(response),
        input,
    };
    let chat = request.into_chat(messages);
    let answered = permitted.answer(&gateway, caller, log, chat, form).await;
    answered.map_err(in_these_words)
}

/// A refusal with the name that its field has here.
fn in_these_words(error: GatewayError) -> GatewayError {
    match error {
        GatewayError::InvalidRequest {
            message,
            param: Some(param),
        } if param == "reasoning_effort" => {
            let message = message.replace("`reasoning_effort`", "`reasoning.effort`");
            GatewayError::invalid("reasoning.effort", message)
        }
        other => other,
    }
}

/// `GET /v1/responses/{id}`, its owner's only.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    Authenticated(caller): Authenticated,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, GatewayError> {
    let streamed = uri.query().unwrap_or_default().split('&');
    if streamed.into_iter().any(|pair| pair == "stream=true") {
        let message = "A stored response cannot be streamed; leave `stream` out.";
        return Err(GatewayError::invalid("stream", message));
    }
    let record = Stored::of(&gateway, &caller.account_id).find(&id).await?;
    Ok(json_response(record.response.clone().into_bytes()))
}

/// `DELETE /v1/responses/{id}`, its owner's only.
pub async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Authenticated(caller): Authenticated,
    Path(id): Path<String>,
) -> Result<Response, GatewayError> {
    let deleting = gateway.conversations.delete(&caller.account_id, &id).await;
    let was_there = deleting.map_err(|error| unavailable(&error))?;
    if !was_there {
        return Err(GatewayError::PreviousResponseNotFound { id });
    }
    Ok(json_response(deleted(&id).to_string().into_bytes()))
}

/// The stored responses of one account, each read once.
struct Stored<'a> {
    gateway: &'a Gateway,
    account_id: &'a str,
    found: HashMap<String, Arc<Record>>,
}

impl<'a> Stored<'a> {
    fn of(gateway: &'a Gateway, account_id: &'a str) -> Self {
        Self {
            gateway,
            account_id,
            found: HashMap::new(),
        }
    }

    /// Missing, expired, evicted and another account's are all the same.
    async fn find(&mut self, id: &str) -> Result<Arc<Record>, GatewayError> {
        if let Some(record) = self.found.get(id) {
            return Ok(record.clone());
        }
        let finding = self.gateway.conversations.find(self.account_id, id).await;
        let found = finding.map_err(|error| unavailable(&error))?;
        let record =
            found.ok_or_else(|| GatewayError::PreviousResponseNotFound { id: id.into() })?;
        let record = Arc::new(record);
        self.found.insert(id.to_owned(), record.clone());
        Ok(record)
    }

    /// Everything up to the end of a response.
    async fn conversation(&mut self, id: &str) -> Result<Vec<Message>, GatewayError> {
        let record = self.find(id).await?;
        let input = serde_json::from_str(&record.input).map_err(|_| unreadable())?;
        Ok(conversation(input, output(&record)?))
    }

    /// The items, with those that are only named put in their places.
    async fn with_references(&mut self, items: Vec<Item>) -> Result<Vec<Item>, GatewayError> {
        let mut all = Vec::with_capacity(items.len());
        for item in items {
            let Some(id) = item.refers_to() else {
                all.push(item);
                continue;
            };
            let missing = || GatewayError::PreviousResponseNotFound { id: id.into() };
            let response_id = response_of_item(id).ok_or_else(missing)?;
            let record = self.find(&response_id).await.map_err(|error| match error {
                GatewayError::PreviousResponseNotFound { .. } => missing(),
                other => other,
            })?;
            let mut output = output(&record)?.into_iter();
            all.push(
                output
                    .find(|item| item.id() == Some(id))
                    .ok_or_else(missing)?,
            );
        }
        Ok(all)
    }
}

/// What a stored response answered.
fn output(record: &Record) -> Result<Vec<Item>, GatewayError> {
    #[derive(serde::Deserialize)]
    struct Answered {
        output: Input,
    }
    let answered: Answered = serde_json::from_str(&record.response).map_err(|_| unreadable())?;
    answered.output.into_items().map_err(|_| unreadable())
}

fn unreadable() -> GatewayError {
    tracing::error!("a stored response cannot be read");
    GatewayError::StorageUnavailable
}

fn unavailable(error: &crate::conversations::StorageError) -> GatewayError {
    tracing::error!(%error, "stored responses cannot be reached");
    GatewayError::StorageUnavailable
}
