//! Places at which a test can end the process, as `kill -9` would: in debug builds only.

/// Every place there is, in the order in which a call comes by.
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

/// Ends the process here if `TOLLGATE_DIE_AT` says so: `charged:7` when this place is reached for
/// the seventh time.
#[cfg(debug_assertions)]
pub fn reached(point: &'static str) {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    };
    static ARMED: LazyLock<Option<(String, AtomicU32)>> = LazyLock::new(|| {
        let wanted = std::env::var("TOLLGATE_DIE_AT").ok()?;
        let (point, times) = wanted.split_once(':')?;
        Some((point.to_owned(), AtomicU32::new(times.parse().ok()?)))
    });
    debug_assert!(POINTS.contains(&point), "{point} is not on the list");
    if let Some((armed, times)) = &*ARMED
        && armed == point
        && times.fetch_sub(1, Ordering::Relaxed) == 1
    {
        // Long enough for others to act on what they should not have been told yet. Then the end:
        // no destructor runs, nothing is flushed.
        std::thread::sleep(std::time::Duration::from_millis(40));
        std::process::abort();
    }
}

#[cfg(not(debug_assertions))]
pub fn reached(_: &'static str) {}
