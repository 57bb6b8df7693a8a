//! Logging to standard error: one line per event, as JSON or as plain text.

use std::io::IsTerminal as _;

use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, ParseError, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::config::{Log, LogFormat};

/// Starts logging, and logs panics as errors. `RUST_LOG` overrides the configured level; one that cannot be read is
/// ignored with a warning.
pub(crate) fn start(log: &Log) {
    let overriding = std::env::var("RUST_LOG").ok().and_then(|it| filter(&it));
    let is_ignored = matches!(overriding, Some(Err(_)));
    let filter = overriding
        .and_then(Result::ok)
        .or_else(|| filter(&log.level)?.ok())
        .unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // A line that cannot be written is lost. To report that on standard error would panic.
        .log_internal_errors(false)
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
    if is_ignored {
        tracing::warn!(
            "RUST_LOG cannot be read and is ignored; it takes levels and targets, e.g. `tollgate=debug,hyper=warn`"
        );
    }
}

/// The filter of comma-separated directives such as `tollgate=debug`; `None` if there are none.
fn filter(directives: &str) -> Option<Result<Targets, ParseError>> {
    (!directives.trim().is_empty()).then(|| directives.parse())
}
