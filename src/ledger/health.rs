//! How the writer's thread is doing, as others see it without asking it.

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

/// With more steps than this waiting, no new call is begun: each brings one more.
const MAX_WAITING: usize = 10_000;
/// While less than this has passed since the last transaction, charges come so often that many go into one.
const QUIET: Duration = Duration::from_millis(1);
/// A transaction that takes longer hangs.
const MAX_BUSY: Duration = Duration::from_secs(2);

/// Why what is written to a database file would not be found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misplaced {
    Moved,
    Replaced,
    /// It has a second name.
    Linked,
    /// The write-ahead log or the lock file is another, or none.
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
    /// What the operator has to do.
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

pub struct Health {
    unwell: AtomicBool,
    /// For good.
    damaged: AtomicBool,
    misplaced: Mutex<Option<Misplaced>>,
    waiting: AtomicUsize,
    started: Instant,
    /// Milliseconds from `started`, plus one; zero while nothing is being committed.
    busy_since: AtomicU64,
    /// When the last transaction was over, in microseconds from `started`.
    ended: AtomicU64,
    /// How many steps went into each transaction.
    pub batch_steps: Histogram,
    /// How long each transaction took, its commit included.
    pub commit_seconds: Histogram,
    /// Calls that were charged after their hold was gone.
    pub late_settlements: Counter,
    /// Holds that an audit released because no running call had them.
    pub stray_holds: Counter,
    /// How often the database's clock was found to have been set.
    pub clock_jumps: Counter,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            unwell: AtomicBool::new(false),
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
    /// Whether a charge that is sent now can be expected to be written down soon.
    pub fn takes_charges(&self) -> bool {
        self.is_well() && self.has_room() && !self.hangs() && !self.damaged.load(Relaxed)
    }

    /// Whether fewer steps wait than may.
    pub(super) fn has_room(&self) -> bool {
        self.waiting() < MAX_WAITING
    }

    /// How many steps wait for their turn.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    pub(super) fn is_well(&self) -> bool {
        !self.unwell.load(Relaxed)
    }

    pub(super) fn set_well(&self, well: bool) {
        self.unwell.store(!well, Relaxed);
    }

    /// What is stored cannot be trusted any more.
    pub(super) fn set_damaged(&self) {
        self.damaged.store(true, Relaxed);
    }

    /// Where the database's files are not where they were; no charges are taken then.
    pub fn misplaced(&self) -> Option<Misplaced> {
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

    /// What was begun beside the steps is over.
    pub(super) fn rests(&self) {
        self.busy_since.store(0, Relaxed);
    }

    /// Whether nothing is being written, nothing waits, and nothing was written just now.
    pub(super) fn is_quiet(&self) -> bool {
        let since = self.elapsed_us().saturating_sub(self.ended.load(Relaxed));
        self.is_well() && self.waiting() == 0 && u128::from(since) >= QUIET.as_micros()
    }

    fn hangs(&self) -> bool {
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
