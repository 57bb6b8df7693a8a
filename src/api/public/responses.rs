//! `/v1/responses` (§4.2): translated to chat completions, and stored for the next turn.
//!
//! A stored response that is missing or unreadable is 404; if the storage is unavailable, the response is 503.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::Arc,
};

use axum::{
    Extension,
    body::Body,
    extract::{Path, Request, State, rejection::PathRejection},
    http::{Uri, header},
    response::Response,
};
use memchr::memmem;

use super::{
    call::{self, Permitted},
    retries, sse,
};
use crate::{
    api::{
        access_log::RequestLog, body::ReceivedBody, extract::Authenticated, json_response, layers,
    },
    base::keys::random_id,
    conversations::Record,
    gateway::{
        Gateway,
        retries::{Begin, RecordedCall},
    },
    ledger::Caller,
    metered::{Form, NotStarted, now},
    prompt::{ChatCall, ToolOrderError, check_order},
    wire::{
        chat::Message,
        error::GatewayError,
        responses::{
            Input, Item, NewResponse, ResponsesRequest, ToolNames, conversation, deleted,
            last_event, response_of_item,
        },
    },
};

/// Creates a response.
pub(crate) async fn respond(
    gateway: &Arc<Gateway>,
    caller: Caller,
    log: &RequestLog,
    body: &ReceivedBody,
    recorded: Option<Arc<RecordedCall>>,
) -> Result<Response, NotStarted> {
    // The body is a JSON object with the right types.
    let mut request = if body.is_large() {
        let body = body.clone();
        let parsed = gateway
            .offload
            .run(move || ResponsesRequest::parse(body.bytes()));
        parsed.await.unwrap_or(Err(GatewayError::Internal))?
    } else {
        ResponsesRequest::parse(body.bytes())?
    };
    // §3.3 The model is one this account may use.
    let permitted = Permitted::check(gateway, &caller, &mut request.chat, log)?.owned();
    // §4.2 The conversation that it continues.
    let stored = Stored::of(gateway, &caller.account_id);
    let earlier = match &request.previous_response_id {
        Some(id) => stored.conversation(id, &mut request.names).await?,
        None => Vec::new(),
    };
    let items = stored
        .with_references(std::mem::take(&mut request.items))
        .await?;
    // From here on it is a chat completion; only the form of the response differs.
    let (mut call, form) = if body.is_large() {
        let (state, caller, body) = (gateway.clone(), caller.clone(), body.clone());
        let prepared = gateway.offload.run(move || {
            let _body = body; // its memory counts, even if the client leaves
            let (mut call, form) = prepare(&state, &caller, permitted, request, earlier, items)?;
            call.count_in_advance();
            Ok((call, form))
        });
        prepared.await.unwrap_or(Err(GatewayError::Internal))?
    } else {
        prepare(gateway, &caller, permitted, request, earlier, items)?
    };
    call.body_memory = body.memory();
    let response = call::respond(gateway, caller, log.clone(), call, form, recorded).await;
    response.map_err(|not_started| not_started.map(with_responses_field))
}

/// Joins the conversation, checks the values, and converts the request to a chat call.
fn prepare(
    gateway: &Gateway,
    caller: &Caller,
    permitted: Permitted,
    mut request: ResponsesRequest,
    earlier: Vec<Message>,
    items: Vec<Item>,
) -> Result<(Box<ChatCall>, Form), GatewayError> {
    let messages = conversation(earlier, items, &mut request.names);
    check_order(&messages).map_err(ToolOrderError::into_responses_error)?;
    // A conversation that is too large to be stored is not written for that.
    let texts = messages
        .iter()
        .filter_map(|message| message.content.as_ref());
    let bytes = texts.map(|text| text.as_json().len()).sum();
    request.echo.store &= gateway.conversations.fits(bytes);
    let input = if request.echo.store {
        Message::write_all(&messages)
    } else {
        String::new()
    };
    let echo = &mut request.echo;
    echo.max_output_tokens = echo
        .max_output_tokens
        .map(|tokens| permitted.capped(tokens));
    let response = NewResponse {
        id: random_id("resp_"),
        created_at: now(),
        echo: std::mem::take(&mut request.echo),
        names: std::mem::take(&mut request.names),
    };
    let form = Form::Response {
        response: Arc::new(response),
        input,
    };
    let chat = request.into_chat(messages);
    let call = permitted.prepare(gateway, (&caller.account_id, caller.plan), chat);
    Ok((call.map_err(with_responses_field)?, form))
}

/// Replaces the name of a chat field in an error by its name in this API.
fn with_responses_field(error: GatewayError) -> GatewayError {
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

/// `GET /v1/responses`, by which some clients look for a WebSocket. On 426 they send the request by HTTP at once; on 404
/// they try again first.
pub(crate) async fn websocket(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let protocols = request.headers().get_all(header::UPGRADE).iter();
    let mut protocols = protocols.filter_map(|value| value.to_str().ok());
    let is_websocket = |value: &str| value.to_ascii_lowercase().contains("websocket");
    let error = if protocols.any(is_websocket) {
        GatewayError::WebSocketNotServed
    } else {
        layers::no_such_route(&request)
    };
    layers::refuse_route(&gateway, request, error).await
}

/// `GET /v1/responses/{id}`, for the account that owns it.
pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    Authenticated(caller): Authenticated,
    Extension(log): Extension<RequestLog>,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, GatewayError> {
    let id = as_text(id);
    if let Some(resumed) = Resumed::read(uri.query().unwrap_or_default())? {
        return resumed.stream(&gateway, &caller, &log, &id).await;
    }
    let stored = Stored::of(&gateway, &caller.account_id);
    let record = stored.find(&id).await?;
    Ok(json_response(record.response.into_bytes()))
}

/// A stored stream that is sent again, during its generation or after it.
struct Resumed {
    /// The events that the client has already.
    skipped: u64,
}

impl Resumed {
    /// Reads `stream` and `starting_after`; `None` if no stream is wanted.
    fn read(query: &str) -> Result<Option<Self>, GatewayError> {
        let value = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        match value("stream") {
            None | Some("false") => return Ok(None),
            Some("true") => {}
            Some(_) => {
                return Err(GatewayError::invalid(
                    "stream",
                    "`stream` must be `true` or `false`.",
                ));
            }
        }
        let last = value("starting_after").map(str::parse::<u32>).transpose();
        let last = last.map_err(|_| {
            let message =
                "`starting_after` must be the `sequence_number` of the last event that you have.";
            GatewayError::invalid("starting_after", message)
        })?;
        Ok(Some(Self {
            skipped: last.map_or(0, |last| u64::from(last) + 1),
        }))
    }

    async fn stream(
        self,
        gateway: &Gateway,
        caller: &Caller,
        log: &RequestLog,
        id: &str,
    ) -> Result<Response, GatewayError> {
        if let Some(recording) = gateway.retries.running_response(&caller.account_id, id)
            && let Begin::Stream { style, .. } = recording.begun().await
        {
            gateway.retries.attach();
            return Ok(retries::running(
                gateway,
                &recording,
                style,
                self.skipped,
                log,
            ));
        }
        let record = Stored::of(gateway, &caller.account_id).find(id).await?;
        let Some(events) = &record.events else {
            let message = "This response cannot be streamed again: it was not streamed, or its events were too long to be \
                kept. Leave `stream` out.";
            return Err(GatewayError::invalid("stream", message));
        };
        let skipped = usize::try_from(self.skipped).unwrap_or(usize::MAX);
        let mut ends = memmem::find_iter(events.as_bytes(), b"\n\n").map(|at| at + 2);
        let start = match skipped.checked_sub(1) {
            None => 0,
            Some(before) => ends.nth(before).unwrap_or(events.len()),
        };
        let count = memmem::find_iter(events.as_bytes(), b"\n\n").count();
        let mut body = events[start..].to_owned();
        if skipped <= count {
            body.push_str(&last_event(count, &record.response));
        }
        body.push_str("data: [DONE]\n\n");
        Ok(sse::with_headers(Body::from(body)))
    }
}

/// `DELETE /v1/responses/{id}`, for the account that owns it.
pub(crate) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Authenticated(caller): Authenticated,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, GatewayError> {
    let id = as_text(id);
    let deleting = gateway.conversations.delete(&caller.account_id, &id).await;
    let existed = deleting.map_err(|error| unavailable(&error))?;
    if !existed {
        return Err(not_found(&id));
    }
    Ok(json_response(deleted(&id).to_string().into_bytes()))
}

/// The ID in the path. One that is not UTF-8 belongs to no response.
fn as_text(id: Result<Path<String>, PathRejection>) -> String {
    id.map_or_else(|_| "?".to_owned(), |Path(id)| id)
}

/// The stored responses of one account.
struct Stored<'a> {
    gateway: &'a Gateway,
    account_id: &'a str,
}

impl<'a> Stored<'a> {
    fn of(gateway: &'a Gateway, account_id: &'a str) -> Self {
        Self {
            gateway,
            account_id,
        }
    }

    /// Finds a response. Missing, expired and evicted ones and those of other accounts give the same error.
    async fn find(&self, id: &str) -> Result<Record, GatewayError> {
        let finding = self.gateway.conversations.find(self.account_id, id).await;
        let found = finding.map_err(|error| unavailable(&error))?;
        found.ok_or_else(|| not_found(id))
    }

    /// The messages up to and including a response.
    async fn conversation(
        &self,
        id: &str,
        names: &mut ToolNames,
    ) -> Result<Vec<Message>, GatewayError> {
        let record = self.find(id).await?;
        let input = serde_json::from_str(&record.input).map_err(|_| unreadable(&record))?;
        Ok(conversation(input, output(&record)?, names))
    }

    /// Replaces references to stored items by the items.
    ///
    /// Each response is read once and each item may be referenced once; otherwise a small request could repeat a large
    /// conversation many times.
    async fn with_references(&self, items: Vec<Item>) -> Result<Vec<Item>, GatewayError> {
        let mut outputs: HashMap<String, Vec<Item>> = HashMap::new();
        let mut referenced = HashSet::new();
        let mut all = Vec::with_capacity(items.len());
        for (at, item) in items.into_iter().enumerate() {
            let Some(id) = item.reference() else {
                all.push(item);
                continue;
            };
            if !referenced.insert(id.to_owned()) {
                let message = format!("`input[{at}]` is `{id}`, which is in `input` already.");
                return Err(GatewayError::invalid(format!("input[{at}].id"), message));
            }
            let missing = || not_found(id);
            let response_id = response_of_item(id).ok_or_else(missing)?;
            let output = match outputs.entry(response_id) {
                Entry::Occupied(read) => read.into_mut(),
                Entry::Vacant(unread) => {
                    let found = self.find(unread.key()).await;
                    let record = found.map_err(|error| match error {
                        GatewayError::PreviousResponseNotFound { .. } => missing(),
                        other => other,
                    })?;
                    unread.insert(output(&record)?)
                }
            };
            let position = output.iter().position(|item| item.id() == Some(id));
            all.push(output.swap_remove(position.ok_or_else(missing)?));
        }
        Ok(all)
    }
}

/// The output items of a stored response.
fn output(record: &Record) -> Result<Vec<Item>, GatewayError> {
    #[derive(serde::Deserialize)]
    struct StoredOutput {
        output: Input,
    }
    let stored: StoredOutput =
        serde_json::from_str(&record.response).map_err(|_| unreadable(record))?;
    stored.output.into_items().map_err(|_| unreadable(record))
}

/// The error with the caller's `id`, cut because it may be of any length.
fn not_found(id: &str) -> GatewayError {
    let id = id.chars().take(64).collect();
    GatewayError::PreviousResponseNotFound { id }
}

/// Logs a stored response that cannot be parsed and reports it as missing, because a retry would not help.
fn unreadable(record: &Record) -> GatewayError {
    tracing::error!(
        response.id = record.id,
        "a stored response cannot be parsed; it is reported as not found"
    );
    not_found(&record.id)
}

/// The error for unavailable storage. `conversations` logs when the storage fails and when it recovers.
fn unavailable(error: &crate::conversations::StorageError) -> GatewayError {
    tracing::debug!(%error, "stored responses are unavailable; the request is refused");
    GatewayError::StorageUnavailable
}
