//! Failpoints: named points in the code at which a test can kill the process, in debug builds only.

/// All failpoints, in the order in which a call reaches them.
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

/// Aborts the process if the environment variable `TOLLGATE_DIE_AT` names this failpoint: with `charged:7`, when
/// `charged` is reached for the seventh time.
#[cfg(debug_assertions)]
pub(crate) fn reached(point: &'static str) {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    };
    static ARMED: LazyLock<Option<(String, AtomicU32)>> = LazyLock::new(|| {
        let wanted = std::env::var("TOLLGATE_DIE_AT").ok()?;
        let (point, times) = wanted.split_once(':')?;
        Some((point.to_owned(), AtomicU32::new(times.parse().ok()?)))
    });
    debug_assert!(
        POINTS.contains(&point) || POSTING.contains(&point),
        "{point} is not on the list"
    );
    if let Some((armed, times)) = &*ARMED
        && armed == point
        && times.fetch_sub(1, Ordering::Relaxed) == 1
    {
        // The pause gives other threads time to act on a result that they should not have yet. Then the process ends
        // as with `kill -9`: no destructor runs, and nothing is flushed.
        std::thread::sleep(std::time::Duration::from_millis(40));
        std::process::abort();
    }
}

#[cfg(not(debug_assertions))]
pub fn reached(_: &'static str) {}
