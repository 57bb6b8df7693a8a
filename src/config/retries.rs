//! `[retries]`: which requests get the response of another call, and how much of it is kept.

use std::time::Duration;

use super::body_memory::machine_memory_here;
use crate::base::checked_toml::{self, Section};

/// The default memory of recordings is a sixteenth of the machine's, within these bounds.
const LEAST_DEFAULT: usize = 32 << 20;
const MOST_DEFAULT: usize = 1 << 30;
const MAX_KEEP_HOURS: u64 = 30 * 24;

/// Responses for retries: of requests with an `Idempotency-Key`, and of calls whose clients have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Whether there are any.
    pub enabled: bool,
    /// Whether a request without a key that is marked as a retry gets the response of a call whose client has left.
    pub attach: bool,
    /// How long the response of a request with a key is stored.
    pub keep: Duration,
    /// Most bytes of a stored response; of a longer one only the key is stored.
    pub max_bytes: usize,
    /// Most bytes of all stored responses.
    pub max_total_bytes: u64,
    /// Most bytes of memory that the responses of running calls, and of calls whose clients have left, may take.
    pub memory_bytes: usize,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            enabled: true,
            attach: true,
            keep: Duration::from_hours(24),
            max_bytes: 1 << 20,
            max_total_bytes: 1 << 30,
            memory_bytes: machine_memory_here(16).clamp(LEAST_DEFAULT, MOST_DEFAULT),
        }
    }
}

pub(super) fn retries(mut section: Section) -> Retries {
    let default = Retries::default();
    let enabled = section.flag("enabled").unwrap_or(default.enabled);
    let attach = section.flag("attach").unwrap_or(default.attach);
    let hours = format!("a number of hours from 1 to {MAX_KEEP_HOURS}");
    let keep = section.optional("keep_hours", &hours, |value| {
        let hours: u64 = checked_toml::as_integer(value)?;
        (1..=MAX_KEEP_HOURS)
            .contains(&hours)
            .then(|| Duration::from_hours(hours))
    });
    let max_bytes = section.optional(
        "max_bytes",
        "a number of bytes from 1 to 67108864",
        |value| checked_toml::as_integer(value).filter(|bytes| (1..=64 << 20).contains(bytes)),
    );
    let bytes = "a number of bytes from 0";
    let max_total_bytes = section.optional("max_total_bytes", bytes, checked_toml::as_integer);
    let memory_bytes = section.optional("memory_bytes", bytes, checked_toml::as_integer);
    section.finish();
    Retries {
        enabled,
        attach,
        keep: keep.unwrap_or(default.keep),
        max_bytes: max_bytes.unwrap_or(default.max_bytes),
        max_total_bytes: max_total_bytes.unwrap_or(default.max_total_bytes),
        memory_bytes: memory_bytes.unwrap_or(default.memory_bytes),
    }
}
