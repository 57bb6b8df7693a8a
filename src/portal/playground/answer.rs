//! The playground without scripts: a submitted form gets a page with the whole answer.
//!
//! Nothing is stored here: the conversation so far is part of the page, in a hidden field.

use std::sync::Arc;

use axum::{
    Extension,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use http_body_util::BodyExt as _;
use serde::Deserialize;

use super::{
    fields::{Fields, Turn},
    key::paying,
    page::{View, page},
};
use crate::{
    api::{
        RequestLog,
        public::{CallHeaders, Endpoint},
    },
    gateway::Gateway,
    portal::{
        error::PortalError,
        form::{SignedForm, is_first_submission},
        session::SignedIn,
    },
    wire::{
        error::{ErrorLabel, Failed, FailedPage, GatewayError},
        messages::NativeHeaders,
    },
};

/// The longest form, which has the whole conversation.
const MAX_BYTES: usize = 512 << 10;
/// What a byte of the form counts. It is in memory most often while the page is made: as a turn, as a message and in the
/// hidden field, both of them in the page's content and in the page. The call has a reservation of its own.
const COPIES: usize = 6;

const SENT_BEFORE: &str = "This message was sent before, and its answer is not stored. Send it again to get another \
     answer, which is charged as well.";

pub(crate) async fn answer(
    State(gateway): State<Arc<Gateway>>,
    Extension(log): Extension<RequestLog>,
    request: Request,
) -> Result<Response, PortalError> {
    // The reservation is released when the page is made.
    let (form, _memory) = SignedForm::<Fields>::read(request, &gateway, MAX_BYTES, COPIES).await?;
    let SignedForm { me, mut form } = form;
    let (turns, problem) = match form.turns() {
        Ok(turns) => {
            form.conversation = String::new(); // a copy of the turns
            (turns, None)
        }
        Err(problem) => (Vec::new(), Some(problem)),
    };
    let mut view = View {
        fields: form,
        turns,
        ..View::default()
    };
    let body = problem.map_or_else(|| view.fields.request(&view.turns), Err);
    let body = match body {
        Ok(body) => body.to_string(),
        Err(problem) => {
            view.problem = Some(problem);
            return with_status(StatusCode::BAD_REQUEST, &gateway, &me, &view).await;
        }
    };
    if !is_first_submission(&gateway, &me, &view.fields.once).await? {
        view.problem = Some(SENT_BEFORE.into());
        return with_status(StatusCode::OK, &gateway, &me, &view).await;
    }
    match ask(&gateway, &me, &log, body).await {
        Ok(content) => {
            // A compared answer belongs to the last message; what is in the field is not sent yet.
            if view.turns.is_empty() || !view.fields.is_compare() {
                let asked = std::mem::take(&mut view.fields.message);
                view.turns.push(Turn::of_user(asked.trim()));
            }
            let answer = Turn::of_model(&view.fields.model, content, log.request_id());
            view.turns.push(answer);
            Ok(page(&gateway, &me, &view).await?.into_response())
        }
        Err(refused) => {
            let failed = refused.extensions().get::<Failed>().cloned();
            let error = failed.map_or_else(|| Arc::new(GatewayError::Internal), |failed| failed.0);
            view.problem = Some(error.to_string());
            view.refused = page_of(&gateway, &log);
            let page = page(&gateway, &me, &view).await?;
            Ok(like(&refused, error, page.into_response()))
        }
    }
}

async fn with_status(
    status: StatusCode,
    gateway: &Gateway,
    me: &SignedIn,
    view: &View,
) -> Result<Response, PortalError> {
    let mut response = page(gateway, me, view).await?.into_response();
    *response.status_mut() = status;
    Ok(response)
}

/// The parts of a chat completion that the page shows.
#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
}

/// Sends the request to the endpoint and returns the answer's text, or the endpoint's error response.
async fn ask(
    gateway: &Arc<Gateway>,
    me: &SignedIn,
    log: &RequestLog,
    body: String,
) -> Result<String, Response> {
    let caller = paying(gateway, me, log).await;
    let caller = caller.map_err(IntoResponse::into_response)?;
    log.caller(&caller);
    let native = NativeHeaders::default();
    let headers = CallHeaders {
        native: &native,
        retry: None,
    };
    let chat = Endpoint::ChatCompletions;
    let response = chat.serve_caller(gateway, caller, log, headers, Body::from(body));
    let response = response.await.map_err(IntoResponse::into_response)?;
    let unreadable = || GatewayError::Internal.into_response();
    let body = response.into_body().collect().await;
    let body = body.map_err(|_| unreadable())?.to_bytes();
    let completion = serde_json::from_slice::<Completion>(&body);
    let completion = completion.map_err(|_| unreadable())?;
    let content = completion.choices.into_iter().next();
    Ok(content
        .and_then(|choice| choice.message.content)
        .unwrap_or_default())
}

/// The path of the page that shows this request, as errors of the API name it.
fn page_of(gateway: &Gateway, log: &RequestLog) -> Option<String> {
    let url = gateway.portal.request_pages.url(&log.request_id())?;
    let path = url.strip_prefix(&gateway.portal.url)?;
    Some(path.to_owned())
}

/// The page with the status of the endpoint's response, counted, logged and recorded as that is.
fn like(refused: &Response, error: Arc<GatewayError>, mut page: Response) -> Response {
    *page.status_mut() = refused.status();
    if let Some(seconds) = refused.headers().get(header::RETRY_AFTER) {
        let seconds = seconds.clone();
        page.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    let extensions = page.extensions_mut();
    if let Some(label) = refused.extensions().get::<ErrorLabel>() {
        extensions.insert(label.clone());
    }
    extensions.insert(FailedPage(error));
    page
}
