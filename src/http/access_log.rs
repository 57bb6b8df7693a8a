//! The request ID and the one line that is logged for each request, when it is really over.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
    time::Instant,
};

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    http::{HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};
use bytes::Bytes;

use crate::{auth::random_id, error::Refusal, metered::Ending, wire::chat::Usage};

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const LOGGED_ID_CHARS: usize = 128;

/// What a handler knows about a request, left on its response.
#[derive(Clone, Debug, Default)]
pub struct LogFields {
    pub account_id: Option<String>,
    pub model: Option<String>,
    pub usage: Option<Usage>,
    ending: Option<Arc<OnceLock<Ending>>>,
}

impl LogFields {
    pub fn of_account(id: &str) -> Self {
        Self {
            account_id: Some(id.to_owned()),
            ..Self::default()
        }
    }

    /// Where a stream writes how it ended.
    pub fn ending(&mut self) -> Arc<OnceLock<Ending>> {
        self.ending.get_or_insert_default().clone()
    }
}

/// Gives the request its ID, and logs it once the last byte of its answer has left.
pub async fn log_requests(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(&request);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = next.run(request).await;
    response.headers_mut().insert(REQUEST_ID, id.clone());
    let line = Line {
        id,
        method: method.to_string(),
        path,
        status: response.status().as_u16(),
        refusal: response.extensions_mut().remove(),
        fields: response.extensions_mut().remove().unwrap_or_default(),
        started,
    };
    response.map(|body| {
        Body::new(LoggedBody {
            body,
            finished: false,
            line,
        })
    })
}

/// The caller's own ID as it was sent, else one of ours. Clients repeat theirs on every retry,
/// so it is a label and never a key.
fn request_id(request: &Request) -> HeaderValue {
    match request.headers().get(REQUEST_ID) {
        Some(sent) if !sent.is_empty() => sent.clone(),
        _ => HeaderValue::try_from(random_id("req_")).expect("letters and digits"),
    }
}

struct Line {
    id: HeaderValue,
    method: String,
    path: String,
    status: u16,
    refusal: Option<Refusal>,
    fields: LogFields,
    started: Instant,
}

impl Line {
    fn log(&self, finished: bool) {
        let id = String::from_utf8_lossy(self.id.as_bytes());
        let id: String = id.chars().take(LOGGED_ID_CHARS).collect();
        let ending = self.fields.ending.as_ref().and_then(|ending| ending.get());
        let usage = match ending {
            Some(Ending::Finished { usage }) => *usage,
            _ => self.fields.usage,
        };
        let problem = match (ending, &self.refusal) {
            (Some(Ending::Interrupted { cause }), _) | (_, Some(Refusal(cause))) => {
                Some(cause.as_str())
            }
            _ if !finished => Some("the client left before the end"),
            _ => None,
        };
        tracing::info!(
            target: "tollgate::request",
            request_id = id,
            method = self.method,
            path = self.path,
            status = self.status,
            duration_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            account.id = self.fields.account_id,
            model = self.fields.model,
            tokens.r#in = usage.map(|usage| usage.prompt),
            tokens.out = usage.map(|usage| usage.completion),
            problem,
            "{} {} {}", self.method, self.path, self.status,
        );
    }
}

/// A body that logs its request when it has been sent, or when it never will be.
struct LoggedBody {
    body: Body,
    finished: bool,
    line: Line,
}

impl HttpBody for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.finished = frame.is_none() || self.body.is_end_stream();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

impl Drop for LoggedBody {
    fn drop(&mut self) {
        // An answer to HEAD, or an empty one, is never polled.
        self.line
            .log(self.finished || self.body.is_end_stream() || self.line.method == "HEAD");
    }
}
