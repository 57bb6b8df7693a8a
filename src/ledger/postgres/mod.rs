//! The ledger on PostgreSQL: any number of gateways, one truth.
//!
//! What money does goes through lanes, in batches, each one call of a function of the database's. A hold
//! is committed without waiting for the disk; a charge is told of once it is flushed. A hold checks the
//! key, the account and the versions of what the gateway remembered in the same step, so what an
//! operator changes counts for the next request everywhere, and a request needs no trip for that.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use tokio::{sync::Notify, time::timeout};

mod admin;
mod audit;
mod billing;
mod flusher;
mod history;
mod lane;
mod lease;
mod look;
mod memory;
mod open_calls;
mod pages;
mod peers;
mod pending;
mod pool;
mod record;
mod schema;
mod steps;
mod strays;
#[cfg(test)]
mod tests;
mod watched;

pub use audit::audit_database;
pub use billing::Pending;
pub use schema::probe;

use self::{
    flusher::Flusher,
    lane::{Lane, Told},
    lease::{Lease, SlotIds, Times},
    look::{Known, Looks},
    memory::{Memory, Settings},
    open_calls::OpenCalls,
    pool::Pool,
    schema::Found,
    steps::Step,
};
use super::{CallId, Caller, Health, LedgerError, LimitRule, ModelSettings, OpenError, Seen};
use crate::{
    base::{clock::Clock, durability::Durability, keys::KeyDigest, money::NanoUsd, rate::Ceilings},
    db::postgres::{Address, Connected, Error},
};

/// Accounts are spread over so many lanes.
const LANES: i32 = 4;
/// How long a batch may take, unless calls are more patient than that.
const BATCH_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a start waits for the database.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a stop waits for what is still to be written.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a look back waits for what is just being written.
const WRITING_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Shared {
    inner: Arc<Inner>,
    lanes: Vec<Lane>,
    looks: Looks,
    memory: Memory,
    ids: SlotIds,
    hasher: RandomState,
    /// What this gateway's running calls have set aside.
    open_holds: AtomicUsize,
    open_amount: AtomicI64,
    audited_to: AtomicI64,
    frozen: AtomicUsize,
    auditing: tokio::sync::Mutex<()>,
}

/// What the tasks work with.
pub struct Inner {
    address: Address,
    durability: Durability,
    /// How long a call waits before it begins.
    deadline: Duration,
    pool: Pool,
    flusher: Flusher,
    health: Arc<Health>,
    clock: Clock,
    /// This run of this gateway, among all.
    run: i64,
    batches: AtomicI64,
    times: Times,
    lease: ArcSwap<Lease>,
    open_calls: OpenCalls,
    lease_wanted: Arc<Notify>,
    /// The lease was given back, or is about to be.
    closing: AtomicBool,
    unwell_lanes: AtomicUsize,
}

impl Inner {
    /// How long a batch may take before its connection is given up.
    fn timeout(&self) -> Duration {
        BATCH_TIMEOUT.max(self.deadline)
    }

    fn next_batch(&self) -> i64 {
        self.batches.fetch_add(1, Relaxed) + 1
    }

    fn lane_is_unwell(&self, error: &Error) {
        if self.unwell_lanes.fetch_add(1, Relaxed) == 0 {
            tracing::error!(%error, "the ledger does not answer: no new call is begun until it does");
        }
        self.health.set_well(false);
    }

    fn lane_is_well(&self) {
        if self.unwell_lanes.fetch_sub(1, Relaxed) == 1 {
            tracing::info!("the ledger answers again");
            self.health.set_well(true);
        }
    }
}

impl Shared {
    /// Connects, brings the tables up to date, and takes a place among the gateways.
    pub async fn open(
        address: Address,
        durability: Durability,
        deadline: Duration,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        Self::open_with(address, durability, deadline, clock, Times::default()).await
    }

    /// The same with other times than a lease has; for tests, which need not wait for them.
    async fn open_with(
        address: Address,
        durability: Durability,
        deadline: Duration,
        clock: Clock,
        times: Times,
    ) -> Result<Self, OpenError> {
        let shown = address.to_string();
        let failed = |source: Error| OpenError::Postgres {
            address: shown.clone(),
            source,
        };
        let connection = connect(&address).await.map_err(failed)?;
        let found = schema::create_if_new(&connection).await.map_err(failed)?;
        if let Found::TooNew { found, known } = found {
            let number = |version| u32::try_from(version).unwrap_or(0);
            return Err(OpenError::TooNew {
                path: shown,
                found: number(found),
                known: number(known),
            });
        }
        let pool = Pool::new(address.clone());
        pool.give_back(connection);
        let lease = Lease::begin(&pool, times).await.map_err(failed)?;
        let (flusher, unflushed) = Flusher::new();
        let (looks, asked) = Looks::new(deadline);
        let inner = Arc::new(Inner {
            address,
            durability,
            deadline,
            pool,
            flusher,
            health: Arc::default(),
            clock,
            run: rand::random_range(0..i64::MAX),
            batches: AtomicI64::new(0),
            times,
            lease: ArcSwap::from_pointee(lease),
            open_calls: OpenCalls::default(),
            lease_wanted: Arc::default(),
            closing: AtomicBool::new(false),
            unwell_lanes: AtomicUsize::new(0),
        });
        let lanes: Vec<Lane> = (0..LANES)
            .map(|at| Lane::start(at, inner.clone()))
            .collect();
        let hasher = RandomState::new();
        let hand_in = {
            let (queues, hasher) = (
                lanes.iter().map(Lane::weak).collect::<Vec<_>>(),
                hasher.clone(),
            );
            let health = inner.health.clone();
            move |step: Step| {
                let at = lane_of(&hasher, &step.account_id);
                if let Some(queue) = queues[at].upgrade() {
                    health.queued();
                    let _ = queue.send(Told::Step(step));
                }
            }
        };
        tokio::spawn(unflushed.run(Arc::downgrade(&inner), hand_in.clone()));
        tokio::spawn(look::run(Arc::downgrade(&inner), asked));
        tokio::spawn(lease::keep(Arc::downgrade(&inner), hand_in));
        let shared = Self {
            inner,
            lanes,
            looks,
            memory: Memory::default(),
            ids: SlotIds::new(),
            hasher,
            open_holds: AtomicUsize::new(0),
            open_amount: AtomicI64::new(0),
            audited_to: AtomicI64::new(0),
            frozen: AtomicUsize::new(0),
            auditing: tokio::sync::Mutex::default(),
        };
        let loaded = shared.first_settings().await;
        loaded.map_err(|error| failed(Error::Unexpected(error.to_string())))?;
        Ok(shared)
    }

    /// A database that is slow for a moment keeps no gateway from starting.
    async fn first_settings(&self) -> Result<(), LedgerError> {
        let started = Instant::now();
        loop {
            match self.reload_settings().await {
                Err(LedgerError::Unavailable) if started.elapsed() < START_TIMEOUT => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                other => return other,
            }
        }
    }

    /// Waits, within bounds, until everything is written, and gives the lease back.
    pub async fn close(&self) {
        let written = async {
            while self.inner.health.waiting() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            self.inner.closing.store(true, Relaxed);
            let lease = **self.inner.lease.load();
            lease.end(&self.inner.pool, self.inner.run).await
        };
        match timeout(CLOSING_TIMEOUT, written).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the lease could not be given back"),
            Err(_) => tracing::error!("the gateway stops before everything could be written down"),
        }
    }

    pub fn next_call(&self) -> CallId {
        self.ids.next(&self.inner.clock, **self.inner.lease.load())
    }

    /// From memory where there is one.
    pub async fn caller(&self, digest: KeyDigest) -> Result<Option<Caller>, LedgerError> {
        let settings = self.memory.settings_version();
        match self.memory.caller(digest) {
            Some(known) => Ok(Some(caller(digest, known, settings, false))),
            None => self.look(digest).await,
        }
    }

    /// Asks the database, and brings what is remembered up to date.
    pub async fn look(&self, digest: KeyDigest) -> Result<Option<Caller>, LedgerError> {
        let seen = self.looks.look(Some(digest)).await;
        let (known, settings) = seen.ok_or(LedgerError::Unavailable)?;
        self.memory.saw(digest, known.as_ref());
        self.settings_are(settings).await?;
        Ok(known.map(|known| caller(digest, known, settings, true)))
    }

    /// Brings the settings up to date.
    pub async fn refresh(&self) -> Result<(), LedgerError> {
        let seen = self.looks.look(None).await;
        let (_, settings) = seen.ok_or(LedgerError::Unavailable)?;
        self.settings_are(settings).await
    }

    async fn settings_are(&self, version: i64) -> Result<(), LedgerError> {
        if version > self.memory.settings_version() {
            self.reload_settings().await?;
        }
        Ok(())
    }

    async fn reload_settings(&self) -> Result<(), LedgerError> {
        let text: String = self
            .inner
            .pool
            .ask_one("SELECT all_settings()::text", &[])
            .await?;
        let settings = Settings::parse(&text).ok_or_else(|| record::unreadable("a setting"))?;
        self.memory.put_settings(settings);
        Ok(())
    }

    pub fn model_settings(&self, model_id: &str) -> ModelSettings {
        let settings = self.memory.settings();
        settings.models.get(model_id).copied().unwrap_or_default()
    }

    pub fn ceilings(&self, account: &str, model: &str, default: Ceilings) -> Ceilings {
        self.memory
            .settings()
            .limits
            .ceilings(account, model, default)
    }

    pub fn limits(&self) -> Vec<LimitRule> {
        self.memory.settings().limits.all()
    }

    /// What this gateway's own calls have set aside.
    pub fn all_held(&self) -> (usize, NanoUsd) {
        let amount = NanoUsd::new(self.open_amount.load(Relaxed));
        (self.open_holds.load(Relaxed), amount)
    }

    pub fn health(&self) -> &Health {
        &self.inner.health
    }

    pub fn violations(&self) -> usize {
        self.frozen.load(Relaxed)
    }

    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Returns once everything that was handed in before is written; where nothing can be written, what
    /// there is can still be read.
    async fn all_written(&self) {
        let written = futures_util::future::join_all(self.lanes.iter().map(Lane::all_done));
        let _ = timeout(WRITING_TIMEOUT, written).await;
    }

    fn hand_in(&self, step: Step) {
        self.inner.health.queued();
        self.lane(&step.account_id).hand_in(step);
    }

    fn lane(&self, account_id: &str) -> &Lane {
        &self.lanes[lane_of(&self.hasher, account_id)]
    }
}

/// A gateway that starts beside its database has some patience with it.
async fn connect(address: &Address) -> Result<Connected, Error> {
    let started = Instant::now();
    loop {
        match address.connect().await {
            Err(error) if error.is_transient() && started.elapsed() < START_TIMEOUT => {
                tracing::warn!(%error, "the database does not let us in yet");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            other => return other,
        }
    }
}

/// The steps of an account stay in order: they all go the same way.
fn lane_of(hasher: &RandomState, account_id: &str) -> usize {
    let lanes = u64::try_from(LANES).unwrap_or(1);
    usize::try_from(hasher.hash_one(account_id) % lanes).unwrap_or(0)
}

fn caller(digest: KeyDigest, known: Known, settings: i64, fresh: bool) -> Caller {
    Caller {
        account_id: known.account_id,
        key_id: known.key_id,
        plan: known.plan,
        account_closed: known.closed,
        credits_expire_at: known.credits_expire_at,
        digest,
        seen: Seen {
            account: known.version,
            settings,
            fresh,
        },
    }
}
