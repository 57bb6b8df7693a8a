//! `POST /v1/messages` and `POST /v1/messages/count_tokens` (§4.9, §4.10): translated to chat completions.

use std::{sync::Arc, time::Duration};

use axum::response::Response;

use super::call::{self, Permitted};
use crate::{
    api::{access_log::RequestLog, body::ReceivedBody, json_response},
    base::keys::random_id,
    catalog::Model,
    gateway::{Gateway, retries::RecordedCall},
    ledger::Caller,
    metered::{Form, NotStarted},
    prompt::ChatCall,
    wire::{
        error::{GatewayError, UpstreamError},
        messages::{MessagesRequest, NativeHeaders, NativeRequest, NewMessage, Purpose},
    },
};

/// How long a provider may take to count tokens.
const COUNT_TIMEOUT: Duration = Duration::from_secs(5);

/// Writes a message.
pub(crate) async fn respond(
    gateway: &Arc<Gateway>,
    caller: Caller,
    log: &RequestLog,
    headers: &NativeHeaders,
    body: &ReceivedBody,
    recorded: Option<Arc<RecordedCall>>,
) -> Result<Response, NotStarted> {
    let prepared = prepare(gateway, &caller, log, headers, body, Purpose::Answer).await?;
    let Prepared {
        mut call,
        wants_edits,
    } = prepared;
    call.body_memory = body.memory();
    let form = Form::Messages(Box::new(NewMessage {
        id: random_id("msg_"),
        request_id: log.request_id(),
        wants_edits,
    }));
    call::respond(gateway, caller, log.clone(), call, form, recorded).await
}

/// Counts the tokens of a message's input, which costs nothing: by the provider that would get the request as it is, or
/// else by the gateway's estimate.
pub(crate) async fn count(
    gateway: &Arc<Gateway>,
    caller: Caller,
    log: &RequestLog,
    headers: &NativeHeaders,
    body: &ReceivedBody,
) -> Result<Response, NotStarted> {
    let prepared = prepare(gateway, &caller, log, headers, body, Purpose::Count).await;
    let tokens = match prepared {
        Ok(prepared) => {
            let counted = counted_by_provider(gateway, &prepared.call).await?;
            counted.unwrap_or_else(|| prepared.call.count().estimate)
        }
        // No target of the hybrid can hold it; clients shorten the conversation by this number.
        Err(GatewayError::ContextLengthExceeded { input, .. }) => input,
        Err(error) => return Err(error.into()),
    };
    let body = format!("{{\"input_tokens\":{tokens}}}");
    Ok(json_response(body.into_bytes()))
}

/// The provider's own count, if it speaks this API and responds in time. Only what it says about the request itself is
/// an error.
async fn counted_by_provider(
    gateway: &Gateway,
    call: &ChatCall,
) -> Result<Option<u64>, GatewayError> {
    if call.native.is_none() {
        return Ok(None);
    }
    let routes = gateway.routes();
    let Some(deployment) = routes.deployments.first_native(&call.route.target.id) else {
        return Ok(None);
    };
    let counting = deployment
        .provider
        .count_tokens(call, &deployment.upstream_model);
    match tokio::time::timeout(COUNT_TIMEOUT, counting).await {
        Ok(Some(Ok(tokens))) => Ok(Some(tokens)),
        Ok(Some(Err(error @ UpstreamError::Verbatim { .. }))) => Err(error.into()),
        _ => Ok(None),
    }
}

/// A request that passed all checks.
struct Prepared {
    call: Box<ChatCall>,
    wants_edits: bool,
}

/// Parses and checks the request; a large one on a thread of its own, so that other requests do not wait for it.
async fn prepare(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    log: &RequestLog,
    headers: &NativeHeaders,
    body: &ReceivedBody,
    purpose: Purpose,
) -> Result<Prepared, GatewayError> {
    if !body.is_large() {
        return check(gateway, caller, log, (headers, body), purpose);
    }
    // The body goes along with its reservation, because it stays in memory even if the client leaves.
    let (state, caller, log, body) = (gateway.clone(), caller.clone(), log.clone(), body.clone());
    let headers = headers.clone();
    let prepared = gateway.offload.run(move || {
        let mut prepared = check(&state, &caller, &log, (&headers, &body), purpose)?;
        prepared.call.count_in_advance();
        Ok(prepared)
    });
    prepared.await.unwrap_or(Err(GatewayError::Internal))
}

fn check(
    gateway: &Gateway,
    caller: &Caller,
    log: &RequestLog,
    (headers, body): (&NativeHeaders, &ReceivedBody),
    purpose: Purpose,
) -> Result<Prepared, GatewayError> {
    // The body is a JSON object with the right types.
    let mut request = MessagesRequest::parse(body.bytes(), purpose)?;
    // §3.3 The model is one this account may use.
    let permitted = Permitted::check(gateway, caller, &mut request.chat, log);
    let mut permitted = permitted.map_err(GatewayError::beginning_with_path)?;
    // Its blocks and values are allowed.
    let takes_native = permitted.takes_native();
    let mut converted = request.into_chat(takes_native)?;
    if takes_native {
        permitted.limit_stops();
    }
    // One token is reserved for a request that generates none, unless the model has a minimum, which refuses it.
    if converted.extras.is_warming && permitted.model().min_output.is_none() {
        converted.chat.max_tokens = converted.chat.max_tokens.map(|_| 1);
    }
    let (model, max_tokens) = (permitted.model().clone(), converted.chat.max_tokens);
    let account = (caller.account_id.as_str(), caller.plan);
    let call = permitted.prepare(gateway, account, converted.chat);
    let mut call = call.map_err(|error| in_terms_of_messages(error, &model, max_tokens))?;
    // With built-in tools the conversation grows, so the caller's bytes are not all of it.
    if takes_native && !call.tools.are_built_in() {
        let native = NativeRequest::new(body.shared_bytes(), headers.clone(), converted.extras);
        call.native = native.map(Arc::new);
    }
    Ok(Prepared {
        call,
        wants_edits: converted.wants_edits,
    })
}

/// Replaces an error about a chat field by one about the field of this API.
fn in_terms_of_messages(
    error: GatewayError,
    model: &Model,
    max_tokens: Option<u64>,
) -> GatewayError {
    let GatewayError::InvalidRequest {
        message,
        param: Some(param),
    } = error
    else {
        return error;
    };
    match (param.as_str(), max_tokens) {
        // Clients lower their budget on these words.
        ("max_tokens", Some(tokens)) if tokens > u64::from(model.max_output) => {
            let (id, most) = (&model.id, model.max_output);
            let message = format!(
                "max_tokens: {tokens} > {most}, which is the maximum allowed number of output tokens for {id}"
            );
            GatewayError::invalid(param, message)
        }
        ("stop", _) => {
            let message = message.replace("`stop`", "`stop_sequences`");
            GatewayError::invalid("stop_sequences", format!("stop_sequences: {message}"))
        }
        ("response_format", _) => {
            GatewayError::invalid("output_config.format", message).beginning_with_path()
        }
        _ => GatewayError::invalid(param, message).beginning_with_path(),
    }
}
