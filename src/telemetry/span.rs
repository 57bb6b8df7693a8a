//! The trace of one request, and its spans.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use axum::http::HeaderMap;

use super::{
    Telemetry,
    context::{self, Parent},
    proto::{self, KeyValue, SpanKind, Status, StatusCode, Value},
};

/// Flags of a span in OTLP: it is known whether its parent is in another program.
const HAS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
/// Longest name of a model that a response may give.
const LONGEST_MODEL: usize = 256;

/// The trace that a request belongs to.
#[derive(Debug)]
pub(crate) struct Trace {
    telemetry: Arc<Telemetry>,
    id: u128,
    parent: Option<u64>,
    /// The span of the whole request.
    root: u64,
    is_recorded: bool,
    state: String,
    /// The span that an upstream continues.
    current: AtomicU64,
    /// The model that the response of the running attempt names.
    model: Mutex<Option<String>>,
}

impl Trace {
    /// The trace of a request with these headers: that of the client, or a new one.
    pub(crate) fn of(telemetry: &Arc<Telemetry>, headers: &HeaderMap) -> Arc<Self> {
        let parent = telemetry
            .propagates()
            .then(|| Parent::of(headers))
            .flatten();
        let id = parent
            .as_ref()
            .map_or_else(|| rand::random_range(1..=u128::MAX), |parent| parent.trace);
        let sampled = parent.as_ref().map(|parent| parent.is_sampled);
        let root = new_span();
        Arc::new(Self {
            telemetry: telemetry.clone(),
            id,
            parent: parent.as_ref().map(|parent| parent.span),
            root,
            is_recorded: telemetry.records(id, sampled),
            state: parent.map(|parent| parent.state).unwrap_or_default(),
            current: AtomicU64::new(root),
            model: Mutex::default(),
        })
    }

    /// Begins the span of the whole request; `None` if the trace is not recorded.
    pub(crate) fn root(self: &Arc<Self>, name: String, kind: SpanKind) -> Option<Span> {
        let mut root = self.begin(self.root, name, kind)?;
        let remote = if self.parent.is_some() { IS_REMOTE } else { 0 };
        root.span.flags |= HAS_REMOTE | remote;
        root.span.parent_span_id = bytes(self.parent);
        Some(root)
    }

    /// Begins a span within the request.
    pub(crate) fn span(self: &Arc<Self>, name: String, kind: SpanKind) -> Option<Span> {
        let mut span = self.begin(new_span(), name, kind)?;
        span.span.parent_span_id = bytes(Some(self.root));
        span.span.flags |= HAS_REMOTE;
        Some(span)
    }

    fn begin(self: &Arc<Self>, id: u64, name: String, kind: SpanKind) -> Option<Span> {
        self.is_recorded.then(|| Span {
            trace: self.clone(),
            span: Box::new(proto::Span {
                trace_id: self.id.to_be_bytes().to_vec(),
                id: bytes(Some(id)),
                trace_state: self.state.clone(),
                name,
                kind: kind.into(),
                start_time_unix_nano: now(),
                flags: 1,
                ..proto::Span::default()
            }),
        })
    }

    /// The lines of a request's head that make its receiver continue this trace.
    pub(crate) fn head_lines(&self) -> String {
        if !self.telemetry.propagates() {
            return String::new();
        }
        let span = self.current.load(Ordering::Relaxed);
        let parent = context::written(self.id, span, self.is_recorded);
        let state = match self.state.as_str() {
            "" => String::new(),
            state => format!("{}: {state}\r\n", context::TRACE_STATE),
        };
        format!("{}: {parent}\r\n{state}", context::TRACE_PARENT)
    }

    pub(crate) fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// Keeps the model that a provider's response names. The provider chooses the name, so a long one is not kept.
    pub(crate) fn answered_by(&self, model: &str) {
        if self.is_recorded && model.len() <= LONGEST_MODEL {
            *self.model() = Some(model.to_owned());
        }
    }

    /// The model that the response of this attempt has named. The next one starts without.
    pub(crate) fn take_model(&self) -> Option<String> {
        self.model().take()
    }

    fn model(&self) -> MutexGuard<'_, Option<String>> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether spans have prompts and answers.
    pub(crate) fn records_messages(&self) -> bool {
        self.is_recorded && self.telemetry.records_messages()
    }
}

/// A part of a request that takes time. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Span {
    trace: Arc<Trace>,
    span: Box<proto::Span>,
}

impl Span {
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.span.attributes.push(KeyValue::new(key, value));
    }

    pub(crate) fn set_if(&mut self, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// It has failed. `kind` has few values; the message is for people.
    pub(crate) fn fail(&mut self, kind: &str, message: &str) {
        self.set("error.type", kind);
        self.span.status = Some(Status {
            message: message.to_owned(),
            code: StatusCode::Error.into(),
        });
    }

    /// A request that is sent now continues this span.
    pub(crate) fn is_continued(&self) {
        let id = self.span.id.as_slice().try_into();
        let id = id.map_or(self.trace.root, u64::from_be_bytes);
        self.trace.current.store(id, Ordering::Relaxed);
    }

    /// Seconds since it began.
    pub(crate) fn elapsed(&self) -> f64 {
        let nanos = now().saturating_sub(self.span.start_time_unix_nano);
        std::time::Duration::from_nanos(nanos).as_secs_f64()
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let mut span = std::mem::take(&mut *self.span);
        span.end_time_unix_nano = now().max(span.start_time_unix_nano);
        self.trace.telemetry.ended(span);
    }
}

/// Nanoseconds since 1970.
pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

fn new_span() -> u64 {
    rand::random_range(1..=u64::MAX)
}

fn bytes(span: Option<u64>) -> Vec<u8> {
    span.map(|span| span.to_be_bytes().to_vec())
        .unwrap_or_default()
}
