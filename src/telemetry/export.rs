//! Sends spans and metrics to the collector, in batches and with retries.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::http::{Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use prometheus_client::metrics::counter::Counter;
use prost::Message;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    Settings, Target, exposition,
    proto::{
        KeyValue, Metrics, Resource, ResourceMetrics, ResourceSpans, Response, Scope, ScopeMetrics,
        ScopeSpans, Span, Traces,
    },
    span::now,
};
use crate::{base::outage::Outage, net::connect};

/// Most spans that wait to be sent; what ends while so many wait is dropped.
const QUEUED: usize = 8192;
/// Most bytes of these spans, which may have prompts.
const QUEUED_BYTES: usize = 32 << 20;
/// Most spans of one request to the collector.
const BATCH: usize = 512;
/// A batch is sent once its spans have this many bytes. Collectors refuse requests of more than some megabytes.
const BATCH_BYTES: usize = 2 << 20;
/// How often one batch is sent before it is dropped.
const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Size limit of a collector's response.
const MAX_RESPONSE: usize = 64 << 10;
/// How long the last spans may take at the end of the process.
pub(crate) const LAST_FLUSH: Duration = Duration::from_secs(5);

pub(crate) struct Telemetry {
    settings: Settings,
    client: connect::Client,
    queue: mpsc::Sender<Span>,
    /// Of the spans in the queue.
    queued_bytes: AtomicUsize,
    /// Taken by the task that sends.
    waiting: Mutex<Option<mpsc::Receiver<Span>>>,
    dropped: Counter,
    started: u64,
    stage: watch::Sender<Stage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Sending,
    /// What waits is sent, and nothing is repeated.
    Closing,
    Closed,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Telemetry({:?})", self.settings.traces)
    }
}

impl Telemetry {
    pub(crate) fn new(settings: Settings) -> Result<Arc<Self>, String> {
        let (queue, waiting) = mpsc::channel(QUEUED);
        let targets = settings.traces.iter().chain(&settings.metrics);
        let timeout = targets.map(|target| target.timeout).max();
        Ok(Arc::new(Self {
            client: connect::client(timeout.unwrap_or_default())?,
            settings,
            queue,
            queued_bytes: AtomicUsize::new(0),
            waiting: Mutex::new(Some(waiting)),
            dropped: Counter::default(),
            started: now(),
            stage: watch::Sender::new(Stage::Sending),
        }))
    }

    /// Whether a trace is recorded.
    pub(super) fn records(&self, trace: u128, parent_is_sampled: Option<bool>) -> bool {
        self.settings.traces.is_some() && self.settings.sampler.records(trace, parent_is_sampled)
    }

    pub(super) fn records_messages(&self) -> bool {
        self.settings.records_messages
    }

    /// Whether traces are sent anywhere.
    pub(crate) fn sends_traces(&self) -> bool {
        self.settings.traces.is_some()
    }

    pub(super) fn propagates(&self) -> bool {
        self.settings.propagates
    }

    pub(super) fn ended(&self, span: Span) {
        let bytes = span.encoded_len();
        let before = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > QUEUED_BYTES || self.queue.try_send(span).is_err() {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped.inc();
        }
    }

    /// Spans that could not be sent to the collector, or that it refused.
    pub(crate) fn dropped(&self) -> Counter {
        self.dropped.clone()
    }

    /// How often metrics are sent; `None`: never.
    pub(crate) fn metrics_interval(&self) -> Option<Duration> {
        let metrics = self.settings.metrics.as_ref();
        metrics.map(|_| self.settings.metrics_interval)
    }

    /// Sends spans until [`Self::close`] is called, and then the rest.
    pub(crate) async fn run(self: Arc<Self>) {
        let taken = self
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(mut waiting) = taken else { return };
        let mut stage = self.stage.subscribe();
        let mut sending = Outage::new("sending spans to the OpenTelemetry collector");
        let mut batch = Batch::default();
        loop {
            let first = tokio::select! {
                first = waiting.recv() => first,
                _ = stage.wait_for(|stage| *stage != Stage::Sending) => break,
            };
            let Some(first) = first else { return };
            self.add(&mut batch, first);
            let until = Instant::now() + self.settings.batch_delay;
            while !batch.is_full() {
                let next = tokio::select! {
                    next = timeout_at(until, waiting.recv()) => next,
                    _ = stage.wait_for(|stage| *stage != Stage::Sending) => break,
                };
                let Ok(Some(next)) = next else { break };
                self.add(&mut batch, next);
            }
            self.send_spans(&mut batch, &mut sending).await;
        }
        waiting.close();
        while let Some(span) = waiting.recv().await {
            self.add(&mut batch, span);
            if batch.is_full() {
                self.send_spans(&mut batch, &mut sending).await;
            }
        }
        self.send_spans(&mut batch, &mut sending).await;
        self.stage.send_replace(Stage::Closed);
    }

    /// Moves a span from the queue to a batch.
    fn add(&self, batch: &mut Batch, span: Span) {
        let bytes = span.encoded_len();
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        batch.bytes += bytes;
        batch.spans.push(span);
    }

    /// Sends what waits, and no more after that. Nothing is sent twice from now on.
    pub(crate) async fn close(&self) {
        self.stage.send_replace(Stage::Closing);
        let mut stage = self.stage.subscribe();
        let _ = stage.wait_for(|stage| *stage == Stage::Closed).await;
    }

    async fn send_spans(&self, batch: &mut Batch, sending: &mut Outage) {
        let spans = std::mem::take(batch).spans;
        let Some(target) = self.settings.traces.as_ref().filter(|_| !spans.is_empty()) else {
            return;
        };
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        let message = Traces {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource()),
                scope_spans: vec![ScopeSpans {
                    scope: Some(scope()),
                    spans,
                }],
            }],
        };
        let sent = self.send(target, &message).await;
        let dropped = sent.as_ref().map_or(count, |refused| count.min(*refused));
        self.dropped.inc_by(dropped);
        sending.log(&sent.map(|_| ()));
    }

    /// Sends metrics, which are in `OpenMetrics` text. What cannot be sent is in the next ones, because they are totals.
    pub(crate) async fn send_metrics(&self, text: &str) -> Result<(), String> {
        let Some(target) = &self.settings.metrics else {
            return Ok(());
        };
        let message = Metrics {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope()),
                    metrics: exposition::metrics(text, self.started, now()),
                }],
            }],
        };
        self.send(target, &message).await.map(|_| ())
    }

    fn resource(&self) -> Resource {
        let attributes = self.settings.resource.iter();
        let attributes = attributes.map(|(key, value)| KeyValue::new(key, value.as_str()));
        Resource {
            attributes: attributes.collect(),
        }
    }

    /// Returns how many spans or metrics the collector has refused of those that it got.
    async fn send(&self, target: &Target, message: &impl Message) -> Result<u64, String> {
        let body = Bytes::from(message.encode_to_vec());
        let mut pause = FIRST_PAUSE;
        let mut attempts = 1;
        loop {
            let posted = timeout(target.timeout, self.post(target, body.clone())).await;
            let failure = match posted {
                Ok(Ok(refused)) => return Ok(refused),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::passing("it did not answer in time".into()),
            };
            let is_last = attempts == ATTEMPTS || *self.stage.borrow() != Stage::Sending;
            if is_last || !failure.may_pass {
                return Err(failure.message);
            }
            attempts += 1;
            let mut stage = self.stage.subscribe();
            tokio::select! {
                () = sleep(failure.retry_after.unwrap_or(pause).min(LONGEST_PAUSE)) => {}
                _ = stage.wait_for(|stage| *stage != Stage::Sending) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn post(&self, target: &Target, body: Bytes) -> Result<u64, Failure> {
        let url = &target.url;
        let mut request = Request::post(url).header(header::CONTENT_TYPE, "application/x-protobuf");
        for (name, value) in &target.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| Failure::lasting(error.to_string()))?;
        let response = self.client.request(request).await;
        let response = response.map_err(|error| Failure::passing(connect::chain(&error)))?;
        let (head, body) = response.into_parts();
        let read = Limited::new(body, MAX_RESPONSE).collect().await;
        let body = read
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        if head.status.is_success() {
            return Ok(refused(&body));
        }
        let retry_after = head.headers.get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|seconds| seconds.to_str().ok()?.parse().ok());
        Err(Failure {
            message: format!("{url} answers with status {}", head.status.as_u16()),
            may_pass: matches!(
                head.status,
                StatusCode::TOO_MANY_REQUESTS
                    | StatusCode::BAD_GATEWAY
                    | StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::GATEWAY_TIMEOUT
            ),
            retry_after: retry_after.map(Duration::from_secs),
        })
    }
}

/// Spans that are sent together.
#[derive(Default)]
struct Batch {
    spans: Vec<Span>,
    bytes: usize,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.spans.len() >= BATCH || self.bytes >= BATCH_BYTES
    }
}

struct Failure {
    message: String,
    may_pass: bool,
    retry_after: Option<Duration>,
}

impl Failure {
    fn passing(message: String) -> Self {
        Self {
            message,
            may_pass: true,
            retry_after: None,
        }
    }

    fn lasting(message: String) -> Self {
        Self {
            may_pass: false,
            ..Self::passing(message)
        }
    }
}

fn scope() -> Scope {
    Scope {
        name: "tollgate".into(),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}

/// How much a collector has refused of what it has accepted, which is logged.
fn refused(body: &[u8]) -> u64 {
    let response = Response::decode(body).unwrap_or_default();
    let Some(partial) = response.partial_success else {
        return 0;
    };
    let rejected = u64::try_from(partial.rejected).unwrap_or(0);
    let message = partial.error_message;
    if rejected > 0 || !message.is_empty() {
        tracing::warn!(
            rejected,
            message,
            "the OpenTelemetry collector refuses a part of what it gets"
        );
    }
    rejected
}

#[cfg(test)]
mod tests;
