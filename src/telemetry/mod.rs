//! Traces and metrics for the operator's collector, over OTLP.
//!
//! A request that is recorded has a [`Trace`], and each part of it that takes time a [`Span`]. Spans wait in a bounded
//! queue and are sent in batches; if the collector is slow or away, spans are dropped and counted, and no request ever
//! waits. Without an endpoint there is no [`Telemetry`], and a request has no trace.
//!
//! Uses net and base. The rooms config, prompt, upstream, gateway, metered, api and server use it.

mod context;
mod export;
mod exposition;
mod proto;
mod settings;
mod span;

pub(crate) use export::{LAST_FLUSH, Telemetry};
pub(crate) use proto::SpanKind;
pub use settings::{Sampler, Settings, Target};
pub(crate) use span::{Span, Trace};
