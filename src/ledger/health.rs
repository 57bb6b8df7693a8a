//! Health of the ledger's writer, readable by other threads without waiting for it.

use std::{
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use prometheus_client::metrics::{
    counter::Counter,
    histogram::{Histogram, exponential_buckets},
};

/// With more operations than this waiting, new holds are refused, because each brings one more operation.
const MAX_WAITING: usize = 10_000;
/// If the last transaction ended less than this ago, charges are so frequent that they are worth batching.
const QUIET: Duration = Duration::from_millis(1);
/// A transaction that takes longer counts as stuck.
const MAX_BUSY: Duration = Duration::from_secs(2);

/// Why data written to the open database file could not be found again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misplaced {
    Moved,
    Replaced,
    /// The file has a second hard link.
    Linked,
    /// The write-ahead log or the lock file was replaced or deleted.
    Companion,
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Moved => "the database file was moved or deleted",
            Self::Replaced => "the database file was replaced by another",
            Self::Linked => "the database file has a second name (hard link)",
            Self::Companion => "the database's -wal or .lock file was deleted or replaced",
        })
    }
}

impl Misplaced {
    /// What the operator should do.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::Moved | Self::Replaced => {
                "put the file back, or stop the gateway and restore the database"
            }
            Self::Linked => "remove the other name; `find -samefile` finds it",
            Self::Companion => "restart the gateway; nothing that was committed is lost",
        }
    }
}

pub(crate) struct Health {
    failing: AtomicBool,
    /// Never reset.
    damaged: AtomicBool,
    misplaced: Mutex<Option<Misplaced>>,
    waiting: AtomicUsize,
    started: Instant,
    /// When the current transaction began, in milliseconds from `started` plus one; zero if there is none.
    busy_since: AtomicU64,
    /// When the last transaction ended, in microseconds from `started`.
    ended: AtomicU64,
    /// Operations in each transaction.
    pub batch_steps: Histogram,
    /// Duration of each transaction, its commit included.
    pub commit_seconds: Histogram,
    /// Calls that were charged after their hold had been released.
    pub late_settlements: Counter,
    /// Holds that an audit released because they had no running call.
    pub stray_holds: Counter,
    /// How often the database server's clock was found to have been set.
    pub clock_jumps: Counter,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            failing: AtomicBool::new(false),
            damaged: AtomicBool::new(false),
            misplaced: Mutex::new(None),
            waiting: AtomicUsize::new(0),
            started: Instant::now(),
            busy_since: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            batch_steps: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            commit_seconds: Histogram::new(exponential_buckets(0.000_1, 3.0, 10)),
            late_settlements: Counter::default(),
            stray_holds: Counter::default(),
            clock_jumps: Counter::default(),
        }
    }
}

impl Health {
    /// Whether a charge sent now can be expected to be committed soon.
    pub(crate) fn takes_charges(&self) -> bool {
        self.is_well() && self.has_room() && !self.is_stuck() && !self.damaged.load(Relaxed)
    }

    /// Whether the queue is shorter than its limit.
    pub(super) fn has_room(&self) -> bool {
        self.waiting() < MAX_WAITING
    }

    /// How many operations are queued.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    pub(super) fn is_well(&self) -> bool {
        !self.failing.load(Relaxed)
    }

    pub(super) fn set_well(&self, well: bool) {
        self.failing.store(!well, Relaxed);
    }

    /// Records that the stored data is damaged.
    pub(super) fn set_damaged(&self) {
        self.damaged.store(true, Relaxed);
    }

    /// Set if the database's files are not where they were when they were opened; charges are refused then.
    pub(crate) fn misplaced(&self) -> Option<Misplaced> {
        *self
            .misplaced
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_misplaced(&self, misplaced: Option<Misplaced>) {
        *self
            .misplaced
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = misplaced;
    }

    pub(super) fn queued(&self) {
        self.waiting.fetch_add(1, Relaxed);
    }

    pub(super) fn begins(&self) {
        self.busy_since.store(self.elapsed_ms() + 1, Relaxed);
    }

    pub(super) fn ends(&self, steps: usize, took: Duration) {
        self.rests();
        self.ended.store(self.elapsed_us(), Relaxed);
        self.waiting.fetch_sub(steps, Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "at most a few hundred")]
        self.batch_steps.observe(steps as f64);
        self.commit_seconds.observe(took.as_secs_f64());
    }

    /// Records the end of a transaction that ran no queued operations.
    pub(super) fn rests(&self) {
        self.busy_since.store(0, Relaxed);
    }

    /// Whether nothing is being written, nothing is queued, and nothing was written just now.
    pub(super) fn is_quiet(&self) -> bool {
        let since = self.elapsed_us().saturating_sub(self.ended.load(Relaxed));
        self.is_well() && self.waiting() == 0 && u128::from(since) >= QUIET.as_micros()
    }

    fn is_stuck(&self) -> bool {
        let since = self.busy_since.load(Relaxed);
        let most = u64::try_from(MAX_BUSY.as_millis()).unwrap_or(u64::MAX);
        since > 0 && self.elapsed_ms() + 1 > since + most
    }

    fn elapsed_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(0)
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(0)
    }
}
