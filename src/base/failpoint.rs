//! Failpoints: named points in the code at which a test can kill the process, in debug builds only.

/// The failpoints of a gateway, in the order in which a call reaches them.
pub const POINTS: [&str; 10] = [
    "counted",
    "held",
    "kept",
    "renewed",
    "answered",
    "batch_begun",
    "batch_taken",
    "batch_committed",
    "charged",
    "handed_over",
];

/// Failpoints of posting the redo log, which no call waits for.
pub const POSTING: [&str; 2] = ["rows_inserted", "rows_committed"];

/// The failpoints of `tollgate import`, in each batch.
pub const IMPORT_POINTS: [&str; 2] = ["import_copied", "import_committed"];

/// Aborts the process if the environment variable `TOLLGATE_DIE_AT` names this failpoint: with `charged:7`, when
/// `charged` is reached for the seventh time. A third number replaces the 40 milliseconds that it waits before.
#[cfg(debug_assertions)]
pub(crate) fn reached(point: &'static str) {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    };
    static ARMED: LazyLock<Option<(String, AtomicU32, u64)>> = LazyLock::new(|| {
        let wanted = std::env::var("TOLLGATE_DIE_AT").ok()?;
        let mut parts = wanted.split(':');
        let (point, times) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
        let pause_ms = parts.next().unwrap_or("40").parse().ok()?;
        Some((point, AtomicU32::new(times), pause_ms))
    });
    let mut known = POINTS.iter().chain(&POSTING).chain(&IMPORT_POINTS);
    debug_assert!(
        known.any(|known| *known == point),
        "{point} is not on the list"
    );
    if let Some((armed, times, pause_ms)) = &*ARMED
        && armed == point
        && times.fetch_sub(1, Ordering::Relaxed) == 1
    {
        // The pause gives other threads time to act on a result that they should not have yet. Then the process ends
        // as with `kill -9`: no destructor runs, and nothing is flushed.
        std::thread::sleep(std::time::Duration::from_millis(*pause_ms));
        std::process::abort();
    }
}

#[cfg(not(debug_assertions))]
pub fn reached(_: &'static str) {}
