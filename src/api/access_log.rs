//! The request ID, and the access log: one line for each request, when the last byte of its response was sent or the
//! client has left.

use std::{
    borrow::Cow,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Instant,
};

use axum::{
    body::{Body, HttpBody},
    extract::{MatchedPath, Request, State},
    http::{HeaderName, HeaderValue, Method, StatusCode},
    middleware::Next,
    response::Response,
};
use bytes::Bytes;
use memchr::memmem::Finder;

use super::{
    Source,
    departure::Departure,
    dialect::Dialect,
    layers,
    refusal_limits::{client_address, count_refusal},
    refused::{self, Answered},
    span::{Answer, RequestSpan},
};
use crate::{
    base::{
        keys::{KeyDigest, rising_id},
        timestamp,
    },
    gateway::{Gateway, traffic::End},
    ledger::{CallId, Caller, Payer, ReplayKind},
    metered::{Ending, Facts},
    net::http1::REQUEST_ID,
    telemetry::Trace,
    wire::{
        agent::Agent,
        chat::Usage,
        error::{Cause, ErrorLabel, Failed, FailedPage, GatewayError},
    },
};

const CREDITS_EXPIRE_AT: HeaderName = HeaderName::from_static("x-credits-expire-at");
/// Most characters of a client's text in the log.
const LOGGED_CHARS: usize = 128;

/// Fields of a request's log line, which are filled in while it is handled.
///
/// Shared between the handler and the log line, because the handler's future is dropped when the client leaves, and the
/// request is logged nevertheless.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestLog(Arc<Mutex<Fields>>);

#[derive(Debug, Default)]
struct Fields {
    request_id: String,
    account_id: Option<String>,
    credits: Credits,
    model: Option<String>,
    agent: Option<Arc<Agent>>,
    usage: Option<Usage>,
    problem: Option<String>,
    /// The key of the authenticated caller.
    payer: Option<Arc<Payer>>,
    /// The visible beginning of that key.
    key_prefix: Option<String>,
    /// Whether the response is a stream.
    streams: Option<bool>,
    facts: Facts,
    trace: Option<Arc<Trace>>,
    /// The keys that were presented and are not valid.
    invalid_keys: Vec<KeyDigest>,
    /// Whether a call was admitted for it, which has failed since.
    is_admitted: bool,
    /// The call whose response it got, and whether that was over.
    replay: Option<(ReplayKind, CallId)>,
    departure: Option<Box<Departure>>,
}

/// When the credit of the caller's account begins to expire (§8.5).
#[derive(Clone, Copy, Debug, Default)]
enum Credits {
    /// The request has no authenticated caller.
    #[default]
    Unknown,
    /// From the lookup of the caller.
    Seen(Option<i64>),
    /// From the hold of the call.
    Held(Option<i64>),
}

impl RequestLog {
    /// Sets the authenticated caller.
    pub(crate) fn caller(&self, caller: &Caller) {
        let mut fields = self.fields();
        if fields.account_id.as_ref() != Some(&caller.account_id) {
            fields.account_id = Some(caller.account_id.clone());
        }
        fields.payer = Some(caller.payer.clone());
        fields.credits = Credits::Seen(caller.credits_expire_at);
    }

    /// Sets the visible beginning of the caller's key.
    pub(super) fn key_prefix(&self, prefix: &str) {
        self.fields().key_prefix = Some(prefix.to_owned());
    }

    pub(crate) fn streams(&self, streams: bool) {
        self.fields().streams = Some(streams);
    }

    pub(crate) fn facts(&self, facts: Facts) {
        self.fields().facts = facts;
    }

    /// The trace that the request belongs to.
    pub(crate) fn trace(&self) -> Option<Arc<Trace>> {
        self.fields().trace.clone()
    }

    /// Adds a key for which no caller was found. It may have been valid before.
    pub(crate) fn invalid_key(&self, key: KeyDigest) {
        self.fields().invalid_keys.push(key);
    }

    /// Notes that the failed request is a call.
    pub(crate) fn admitted(&self) {
        self.fields().is_admitted = true;
    }

    /// What a record of the refused request needs.
    pub(super) fn sender(&self) -> Sender {
        let fields = self.fields();
        Sender {
            request_id: fields.request_id.clone(),
            account_id: fields.account_id.clone(),
            payer: fields.payer.clone(),
            invalid_keys: fields.invalid_keys.clone(),
            is_admitted: fields.is_admitted,
            model: fields.model.clone(),
            agent: fields.agent.clone(),
        }
    }

    /// Sets when the credit that pays for the call expires.
    pub(crate) fn credits_expire_at(&self, expiry: Option<i64>) {
        self.fields().credits = Credits::Held(expiry);
    }

    fn expiry(&self, gateway: &Gateway) -> Option<i64> {
        let fields = self.fields();
        match fields.credits {
            Credits::Unknown => None,
            Credits::Held(expiry) => expiry,
            Credits::Seen(seen) => {
                let account_id = fields.account_id.as_deref()?;
                gateway.ledger.credits_expire_at(account_id, seen)
            }
        }
    }

    /// The request ID as it is logged and stored.
    pub(crate) fn request_id(&self) -> String {
        self.fields().request_id.clone()
    }

    /// The account that the request belongs to, if any.
    pub(crate) fn account_id(&self) -> Option<String> {
        self.fields().account_id.clone()
    }

    pub(crate) fn account(&self, id: &str) {
        self.fields().account_id = Some(id.to_owned());
    }

    pub(crate) fn model(&self, id: &str) {
        self.fields().model = Some(loggable(id));
    }

    /// Sets the coding agent that sent the request.
    pub(crate) fn sent_by(&self, agent: Arc<Agent>) {
        self.fields().agent = Some(agent);
    }

    /// The coding agent that sent the request, if it named itself.
    pub(crate) fn agent(&self) -> Option<Arc<Agent>> {
        self.fields().agent.clone()
    }

    pub(crate) fn usage(&self, usage: Usage) {
        self.fields().usage = Some(usage);
    }

    /// Sets the call whose response the request gets.
    pub(crate) fn replay(&self, kind: ReplayKind, call: CallId) {
        self.fields().replay = Some((kind, call));
    }

    /// Sets what happens if the client leaves before the end of its response.
    pub(super) fn on_leave(&self, departure: Departure) {
        self.fields().departure = Some(Box::new(departure));
    }

    /// Sets how a stream ended.
    pub(crate) fn ended(&self, ending: Ending) {
        match ending {
            Ending::Finished { usage, facts } => {
                let mut fields = self.fields();
                (fields.usage, fields.facts) = (usage, facts);
            }
            Ending::Interrupted { cause, facts } => {
                let mut fields = self.fields();
                (fields.problem, fields.facts) = (Some(cause), facts);
            }
        }
    }

    fn fields(&self) -> MutexGuard<'_, Fields> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who sent a request, as far as it is known.
pub(super) struct Sender {
    pub request_id: String,
    pub account_id: Option<String>,
    /// The key of the caller.
    pub payer: Option<Arc<Payer>>,
    pub invalid_keys: Vec<KeyDigest>,
    /// Whether a call was admitted for the request.
    pub is_admitted: bool,
    pub model: Option<String>,
    pub agent: Option<Arc<Agent>>,
}

/// The listener that a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    /// Its errors name the page of the portal that shows the request.
    Public,
    Operator,
}

/// The only layer around the public router, because each layer costs a request some allocations.
pub(super) async fn log_requests(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    log_matched(&gateway, Listener::Public, request, next).await
}

/// The same around the operators' router.
pub(super) async fn log_operator_requests(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    log_matched(&gateway, Listener::Operator, request, next).await
}

async fn log_matched(
    gateway: &Arc<Gateway>,
    listener: Listener,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.map(Route::Matched);
    let handler = |mut request: Request, log| {
        request.extensions_mut().insert::<RequestLog>(log);
        next.run(request)
    };
    logged(gateway, (listener, route), request, None, handler).await
}

/// Assigns the request ID, runs the handler, and logs the request when the last byte of the response was sent.
///
/// `source` is where the request comes from, unless the request itself has the client's address as its `Peer`.
pub(super) async fn logged<F: Future<Output = Response>>(
    gateway: &Arc<Gateway>,
    (listener, route): (Listener, Option<Route>),
    request: Request,
    source: Option<&Source>,
    handler: impl FnOnce(Request, RequestLog) -> F,
) -> Response {
    let id = request_id(&request);
    let dialect = Dialect::of(&request, route.as_ref());
    let log = RequestLog::default();
    log.fields().request_id = match id.to_str() {
        Ok(id) => loggable(id),
        Err(_) => loggable(&String::from_utf8_lossy(id.as_bytes())),
    };
    let span = RequestSpan::begin(gateway, &request, route.as_ref());
    log.fields().trace = span.as_ref().map(RequestSpan::trace);
    let mut line = Line {
        span,
        client: client_address(&request, source),
        gateway: gateway.clone(),
        method: request.method().clone(),
        path: path(&request, route.as_ref()),
        listener,
        route,
        status: None,
        complete: false,
        log: log.clone(),
        started: Instant::now(),
    };
    let handler = |request| handler(request, log);
    let mut response = layers::handle(gateway, request, source, handler).await;
    if let Some(ErrorLabel(code)) = response.extensions_mut().remove() {
        line.gateway.metrics.refused(&code);
        if let Some(span) = &mut line.span {
            span.error_code(&code);
        }
        // Without an account it was counted when it was refused.
        if let Some(account_id) = &line.log.fields().account_id
            && line.is_api_request()
        {
            count_refusal(gateway, account_id, &code, &response);
        }
    }
    if let Some(Cause(cause)) = response.extensions_mut().remove() {
        line.log.fields().problem = Some(cause);
    }
    if let Some(Failed(error)) = response.extensions_mut().remove() {
        line.log.fields().problem = Some(error.cause());
        response = line.refused(&error, dialect, &id, response);
    }
    if let Some(FailedPage(error)) = response.extensions_mut().remove() {
        line.log.fields().problem = Some(error.cause());
        line.record(&error, line.log.sender(), response.status());
    }
    dialect.mark(&id, &mut response);
    response.headers_mut().insert(REQUEST_ID, id);
    let expiry = line.log.expiry(gateway).map(timestamp::shown);
    if let Some(expiry) = expiry.and_then(|expiry| HeaderValue::try_from(expiry).ok()) {
        response.headers_mut().insert(CREDITS_EXPIRE_AT, expiry);
    }
    line.status = Some(response.status().as_u16());
    // An empty body and the body of a HEAD response are never polled.
    line.complete = response.body().is_end_stream() || line.method == Method::HEAD;
    response.map(|body| Body::new(LoggedBody { body, line }))
}

/// The request ID that the client sent, or a new one. Clients repeat theirs with every retry, so it is a label and does
/// not identify a request uniquely.
fn request_id(request: &Request) -> HeaderValue {
    match request.headers().get(REQUEST_ID) {
        Some(sent) if !sent.is_empty() => sent.clone(),
        _ => {
            let now_ms = u64::try_from(timestamp::now_ms()).unwrap_or(0);
            HeaderValue::try_from(rising_id("req_", now_ms)).expect("an ASCII identifier")
        }
    }
}

/// A client's text for the log: limited in length, and cut before anything that looks like an API key.
pub(crate) fn loggable(text: &str) -> String {
    static KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("sk-svc-"));
    let text = &text[..KEY.find(text.as_bytes()).unwrap_or(text.len())];
    // A character takes at least one byte, so most texts are known to be short enough without counting characters.
    if text.len() <= LOGGED_CHARS {
        return text.to_owned();
    }
    text.chars().take(LOGGED_CHARS).collect()
}

/// A request's method for the log and for messages. Any token is a method, up to the size of a head.
pub(crate) fn loggable_method(method: &Method) -> Cow<'_, str> {
    /// Length of the longest standard methods, which are returned without a copy.
    const STANDARD: usize = "OPTIONS".len();
    let method = method.as_str();
    if method.len() <= STANDARD {
        method.into()
    } else {
        loggable(method).into()
    }
}

/// The request's path for the log.
fn path(request: &Request, route: Option<&Route>) -> Cow<'static, str> {
    match route {
        Some(Route::Known(path)) => (*path).into(),
        _ => loggable(request.uri().path()).into(),
    }
}

/// The route pattern of a request.
pub(crate) enum Route {
    Matched(MatchedPath),
    /// A billed endpoint, which is not in the router.
    Known(&'static str),
}

impl Route {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Matched(path) => path.as_str(),
            Self::Known(path) => path,
        }
    }
}

/// The log line. It is written when it is dropped: after the last byte of the response, or when the client leaves.
struct Line {
    gateway: Arc<Gateway>,
    listener: Listener,
    /// `None` for a path that is not served.
    route: Option<Route>,
    method: Method,
    path: Cow<'static, str>,
    /// `None` if the client left before there was a response.
    status: Option<u16>,
    /// Whether the whole response was passed to the connection.
    complete: bool,
    log: RequestLog,
    started: Instant,
    client: Option<IpAddr>,
    span: Option<RequestSpan>,
}

impl Line {
    /// Whether it is a request of the API, or of the portal's playground, which sends such requests: from a script, or by
    /// a form.
    fn is_api_request(&self) -> bool {
        match &*self.path {
            "/v1" | "/portal/playground/run" => true,
            "/portal/playground" => self.method == Method::POST,
            path => path.starts_with("/v1/"),
        }
    }
}

impl Line {
    /// The response to a failed request, which names the page that shows it.
    fn refused(
        &self,
        error: &GatewayError,
        dialect: Dialect,
        id: &HeaderValue,
        response: Response,
    ) -> Response {
        let sender = self.log.sender();
        let pages = &self.gateway.portal.request_pages;
        let url = match self.listener {
            Listener::Public => pages.url(&sender.request_id),
            Listener::Operator => None,
        };
        let response = dialect.translated(error, id, url, response);
        self.record(error, sender, response.status());
        response
    }

    /// Records a failed request, unless a call was admitted for it.
    fn record(&self, error: &GatewayError, sender: Sender, status: StatusCode) {
        if self.is_api_request() && !sender.is_admitted {
            let answered = Answered {
                path: &self.path,
                status,
                took: self.started.elapsed(),
            };
            refused::record(&self.gateway, sender, error, answered);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        let route = self.route.as_ref().map_or("none", Route::as_str);
        // 499 for a client that left before there was a response, as nginx logs it.
        self.gateway
            .metrics
            .served(route, self.status.unwrap_or(499), took);
        let departure = self.log.fields().departure.take();
        if let Some(departure) = departure.filter(|_| !self.complete) {
            departure.happened();
        }
        let fields = self.log.fields();
        if self.is_api_request() {
            let end = end(self.status, fields.problem.is_some());
            self.gateway.traffic.ended(end);
        }
        let left = (!self.complete).then_some("the client left before the end");
        if let Some(span) = self.span.take() {
            span.end(&Answer {
                status: self.status,
                client: self.client,
                request_id: &fields.request_id,
                account_id: fields.account_id.as_deref(),
                key_prefix: fields.key_prefix.as_deref(),
                model: fields.model.as_deref(),
                problem: fields.problem.as_deref(),
                has_left: !self.complete,
            });
        }
        tracing::info!(
            target: "tollgate::request",
            request_id = fields.request_id,
            method = &*loggable_method(&self.method),
            path = &*self.path,
            status = self.status,
            duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            client = self.client.map(tracing::field::display),
            account.id = fields.account_id,
            key.prefix = fields.key_prefix,
            model = fields.model,
            stream = fields.streams,
            upstream = fields.facts.upstream.as_deref(),
            first_byte_ms = fields.facts.first_byte_ms,
            tokens.r#in = fields.usage.map(|usage| usage.prompt),
            tokens.out = fields.usage.map(|usage| usage.completion),
            cost = fields.facts.cost.map(tracing::field::display),
            replay = fields.replay.map(|(kind, _)| kind.as_str()),
            replay.call = fields.replay.map(|(_, call)| tracing::field::display(call)),
            problem = fields.problem.as_deref().or(left),
            "request",
        );
    }
}

/// How a request counts in the traffic statistics. An interrupted stream has failed despite its status 200. A client
/// that left counts as served, because the gateway did not fail it.
fn end(status: Option<u16>, has_problem: bool) -> End {
    match status {
        Some(400..500) => End::Refused,
        Some(500..) => End::Failed,
        Some(_) if has_problem => End::Failed,
        _ => End::Served,
    }
}

/// A response body with the log line that is written when it is dropped.
struct LoggedBody {
    body: Body,
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
        self.line.complete = frame.is_none() || self.body.is_end_stream();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
