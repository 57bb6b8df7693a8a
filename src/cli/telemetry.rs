//! Logging to standard error: one line per event, as JSON or as plain text.

use std::io::IsTerminal as _;

use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::config::{Log, LogFormat};

/// Starts logging, and logs panics as errors. `RUST_LOG` overrides the configured level.
pub(crate) fn start(log: &Log) {
    let overridden = std::env::var("RUST_LOG").ok();
    let filter = overridden
        .and_then(|directives| filter(&directives))
        .or_else(|| filter(&log.level))
        .unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let lines = match log.format {
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        LogFormat::Pretty => lines.with_target(false).boxed(),
    };
    // In tests a process may start logging twice; the second start has no effect.
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .try_init();
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let message = panic.payload_as_str().unwrap_or("without a message");
        tracing::error!(place, "panic: {message}");
    }));
}

/// The filter of comma-separated directives such as `tollgate=debug`; `None` if there are none or one is invalid.
fn filter(directives: &str) -> Option<Targets> {
    if directives.trim().is_empty() {
        return None;
    }
    directives.parse().ok()
}
