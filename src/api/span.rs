//! The span of a whole request in the operator's traces.

use std::{net::IpAddr, sync::Arc};

use axum::{extract::Request, http::Method};

use super::access_log::{Route, loggable};
use crate::{
    gateway::Gateway,
    telemetry::{Span, SpanKind, Trace},
};

/// The status of a client that left before there was a response.
const CLIENT_LEFT: u16 = 499;

pub(super) struct RequestSpan {
    trace: Arc<Trace>,
    /// `None` if the trace is not recorded.
    span: Option<Span>,
    error_code: Option<String>,
}

/// What is known of a request when it is over.
pub(super) struct Answer<'a> {
    pub status: Option<u16>,
    pub client: Option<IpAddr>,
    pub request_id: &'a str,
    pub account_id: Option<&'a str>,
    pub key_prefix: Option<&'a str>,
    pub model: Option<&'a str>,
    pub problem: Option<&'a str>,
    /// Whether the client left before the end.
    pub has_left: bool,
}

impl RequestSpan {
    /// Begins the span of a request of the API; `None` for others, and if traces are sent nowhere.
    pub(super) fn begin(
        gateway: &Gateway,
        request: &Request,
        route: Option<&Route>,
    ) -> Option<Self> {
        let telemetry = gateway.telemetry.as_ref()?;
        if !telemetry.sends_traces() {
            return None;
        }
        let path = request.uri().path();
        if !path.starts_with("/v1/") {
            return None;
        }
        let trace = Trace::of(telemetry, request.headers());
        let (method, in_name) = method(request.method());
        let route = route.map(Route::as_str);
        let name = match route {
            Some(route) => format!("{in_name} {route}"),
            None => in_name.to_owned(),
        };
        let mut span = trace.root(name, SpanKind::Server);
        if let Some(span) = &mut span {
            span.set("http.request.method", method);
            span.set("url.path", loggable(path));
            span.set_if("http.route", route);
            let agent = request.headers().get(axum::http::header::USER_AGENT);
            let agent = agent.and_then(|agent| agent.to_str().ok());
            span.set_if("user_agent.original", agent.map(loggable));
        }
        Some(Self {
            trace,
            span,
            error_code: None,
        })
    }

    pub(super) fn trace(&self) -> Arc<Trace> {
        self.trace.clone()
    }

    /// Sets the code of the error that is the response.
    pub(super) fn error_code(&mut self, code: &str) {
        if self.span.is_some() {
            self.error_code = Some(code.to_owned());
        }
    }

    pub(super) fn end(self, answer: &Answer<'_>) {
        let Some(mut span) = self.span else { return };
        let status = answer.status.unwrap_or(CLIENT_LEFT);
        span.set("http.response.status_code", status);
        span.set_if(
            "client.address",
            answer.client.map(|client| client.to_string()),
        );
        span.set("tollgate.request.id", answer.request_id);
        span.set_if("tollgate.account.id", answer.account_id);
        span.set_if("tollgate.key.prefix", answer.key_prefix);
        // Not `gen_ai.request.model`: the attempts are the calls of a model, and a request would count as one more.
        span.set_if("tollgate.requested_model", answer.model);
        span.set_if("tollgate.error.code", self.error_code.as_deref());
        if answer.has_left {
            span.set("tollgate.client_left", true);
        }
        // What the client has done wrong is no error of a server.
        if status >= 500 || (status < 400 && answer.problem.is_some()) {
            let kind = self.error_code.as_deref().unwrap_or("interrupted");
            span.fail(kind, answer.problem.unwrap_or_default());
        }
    }
}

/// A method by its name in the conventions, and in a span's name: any token is a method, and each would be a name.
fn method(method: &Method) -> (&'static str, &'static str) {
    const KNOWN: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
    ];
    let known = KNOWN.iter().find(|known| **known == method.as_str());
    known.map_or(("_OTHER", "HTTP"), |known| (known, known))
}
