//! The ledger in PostgreSQL, shared by any number of gateways.
//!
//! Operations on money are sent in batches through lanes, each batch as one call of a database function. A hold is
//! committed without waiting for the disk; a charge is confirmed once it is flushed. A hold checks the key, the account
//! and the versions of the gateway's cached data in the same operation. So an operator's change applies to the next
//! request everywhere, and a request needs no round trip of its own for that.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use tokio::{
    sync::{Notify, Semaphore},
    time::timeout,
};

mod account_days;
mod admin;
mod audit;
mod billing;
mod budgets;
mod cache;
mod erasure;
mod export;
mod flusher;
mod history;
mod idempotency;
mod keys;
mod lane;
mod lease;
mod lookup;
mod months;
mod open_calls;
mod opening;
mod operations;
mod pages;
mod peers;
mod pending;
mod pool;
mod projects;
mod record;
mod schema;
mod sessions;
mod spans;
mod strays;
#[cfg(test)]
mod tests;
mod watched;

pub(crate) use audit::audit_database;
pub(crate) use billing::Pending;
pub(crate) use export::export_database;
pub(crate) use months::prune_database;
pub(crate) use opening::connect;
pub(crate) use schema::probe;

use self::{
    cache::{Cache, Settings},
    flusher::Flusher,
    lane::{Lane, Message},
    lease::{Lease, SlotIds, Times},
    lookup::{KnownCaller, Lookups},
    open_calls::OpenCalls,
    operations::Operation,
    pool::Pool,
};
use super::{CallId, Caller, Health, LedgerError, LimitRule, ModelSettings, OpenError, Seen};
use crate::{
    base::{clock::Clock, durability::Durability, keys::KeyDigest, money::NanoUsd, rate::Ceilings},
    db::postgres::{Address, Error},
};

/// Accounts are distributed over this many lanes.
const LANES: i32 = 4;
/// Timeout of a batch, unless the deadline of holds is longer.
const BATCH_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a start waits for the database.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a stop waits for queued operations to be written.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a query waits for queued operations to be written.
const WRITING_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Shared {
    inner: Arc<Inner>,
    lanes: Vec<Lane>,
    lookups: Lookups,
    cache: Cache,
    ids: SlotIds,
    hasher: RandomState,
    /// Number and sum of the holds of this gateway's running calls.
    open_holds: AtomicUsize,
    open_amount: AtomicI64,
    frozen: AtomicUsize,
    /// Bytes of responses that this gateway has stored for retries since it last made room.
    kept_bytes: AtomicU64,
    /// One permit for each connection that looks up idempotency keys, or records replays.
    lookups_of_keys: Semaphore,
    replays: Arc<Semaphore>,
    auditing: tokio::sync::Mutex<audit::Progress>,
}

/// State shared by the ledger's tasks.
pub(crate) struct Inner {
    address: Address,
    durability: Durability,
    /// Timeout of placing a hold.
    deadline: Duration,
    pool: Pool,
    flusher: Flusher,
    health: Arc<Health>,
    clock: Clock,
    /// Random ID of this run of the gateway.
    run: i64,
    batches: AtomicI64,
    times: Times,
    lease: ArcSwap<Lease>,
    open_calls: OpenCalls,
    lease_needed: Arc<Notify>,
    /// The lease has been ended, or is about to be.
    closing: AtomicBool,
    failing_lanes: AtomicUsize,
}

impl Inner {
    /// Timeout of a batch, after which its connection is dropped.
    fn timeout(&self) -> Duration {
        BATCH_TIMEOUT.max(self.deadline)
    }

    fn next_batch(&self) -> i64 {
        self.batches.fetch_add(1, Relaxed) + 1
    }

    fn lane_failed(&self, error: &Error) {
        if self.failing_lanes.fetch_add(1, Relaxed) == 0 {
            tracing::error!(%error, "the ledger database is unreachable; new calls are refused until it recovers");
        }
        self.health.set_well(false);
    }

    fn lane_recovered(&self) {
        if self.failing_lanes.fetch_sub(1, Relaxed) == 1 {
            tracing::info!("the ledger database is reachable again; new calls are accepted");
            self.health.set_well(true);
        }
    }
}

impl Shared {
    /// Connects, creates the schema if needed, and takes a lease.
    pub(crate) async fn open(
        address: Address,
        durability: Durability,
        deadline: Duration,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        Self::open_with(address, durability, deadline, clock, Times::default()).await
    }

    /// As [`Self::open`], with other lease times; tests use short ones.
    async fn open_with(
        address: Address,
        durability: Durability,
        deadline: Duration,
        clock: Clock,
        times: Times,
    ) -> Result<Self, OpenError> {
        let connection = opening::connect(&address).await?;
        let pool = Pool::new(address.clone());
        pool.put_back(connection);
        let lease = opening::begin_lease(&pool, &address, times).await?;
        let (flusher, flush_task) = Flusher::new();
        let (lookups, queued_lookups) = Lookups::new(deadline);
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
            lease_needed: Arc::default(),
            closing: AtomicBool::new(false),
            failing_lanes: AtomicUsize::new(0),
        });
        let lanes: Vec<Lane> = (0..LANES)
            .map(|at| Lane::start(at, inner.clone()))
            .collect();
        let hasher = RandomState::new();
        let submit = {
            let (queues, hasher) = (
                lanes.iter().map(Lane::weak).collect::<Vec<_>>(),
                hasher.clone(),
            );
            let health = inner.health.clone();
            move |operation: Operation| {
                let at = lane_of(&hasher, &operation.account_id);
                if let Some(queue) = queues[at].upgrade() {
                    health.queued();
                    let _ = queue.send(Message::Operation(operation));
                }
            }
        };
        tokio::spawn(flush_task.run(Arc::downgrade(&inner), submit.clone()));
        tokio::spawn(lookup::run(Arc::downgrade(&inner), queued_lookups));
        tokio::spawn(lease::keep(Arc::downgrade(&inner), submit));
        let shared = Self {
            inner,
            lanes,
            lookups,
            cache: Cache::default(),
            ids: SlotIds::new(),
            hasher,
            open_holds: AtomicUsize::new(0),
            open_amount: AtomicI64::new(0),
            frozen: AtomicUsize::new(0),
            kept_bytes: AtomicU64::new(0),
            lookups_of_keys: Semaphore::new(idempotency::CONNECTIONS),
            replays: Arc::new(Semaphore::new(1)),
            auditing: tokio::sync::Mutex::default(),
        };
        let loaded = shared.first_settings().await;
        loaded.map_err(|error| {
            let error = Error::Unexpected(error.to_string());
            opening::failed(&shared.inner.address, error)
        })?;
        Ok(shared)
    }

    /// Loads the settings, retrying while the database is slow, up to the start timeout.
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

    /// Waits, for a bounded time, until everything is written, then ends the lease.
    pub(crate) async fn close(&self) {
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
            Ok(Err(error)) => {
                tracing::warn!(%error, "the lease could not be ended; it expires by itself");
            }
            Err(_) => {
                tracing::error!("the gateway stops before all ledger operations were written");
            }
        }
    }

    pub(crate) fn next_call(&self) -> CallId {
        self.ids.next(&self.inner.clock, **self.inner.lease.load())
    }

    /// From the cache, or else from the database.
    pub(crate) async fn caller(&self, digest: KeyDigest) -> Result<Option<Caller>, LedgerError> {
        let settings = self.cache.settings_version();
        match self.cache.caller(digest) {
            Some(known) => Ok(Some(caller(digest, known, settings, false))),
            None => self.fresh_caller(digest).await,
        }
    }

    /// Whether the cache has the caller of this key.
    pub(crate) fn has_in_memory(&self, digest: KeyDigest) -> bool {
        self.cache.caller(digest).is_some()
    }

    /// Reads the caller from the database and updates the cache.
    pub(crate) async fn fresh_caller(
        &self,
        digest: KeyDigest,
    ) -> Result<Option<Caller>, LedgerError> {
        let seen = self.lookups.lookup(Some(digest)).await;
        let (known, settings) = seen.ok_or(LedgerError::Unavailable)?;
        self.cache.put_caller(digest, known.as_ref());
        self.ensure_settings(settings).await?;
        Ok(known.map(|known| caller(digest, known, settings, true)))
    }

    /// Reloads the settings if they have changed.
    pub(crate) async fn refresh(&self) -> Result<(), LedgerError> {
        let seen = self.lookups.lookup(None).await;
        let (_, settings) = seen.ok_or(LedgerError::Unavailable)?;
        self.ensure_settings(settings).await
    }

    async fn ensure_settings(&self, version: i64) -> Result<(), LedgerError> {
        if version > self.cache.settings_version() {
            self.reload_settings().await?;
        }
        Ok(())
    }

    async fn reload_settings(&self) -> Result<(), LedgerError> {
        let text: String = self
            .inner
            .pool
            .query_one("SELECT all_settings()::text", &[])
            .await?;
        let settings = Settings::parse(&text).ok_or_else(|| record::unreadable("a setting"))?;
        self.cache.put_settings(settings);
        Ok(())
    }

    pub(crate) fn model_settings(&self, model_id: &str) -> ModelSettings {
        let settings = self.cache.settings();
        settings.models.get(model_id).copied().unwrap_or_default()
    }

    pub(crate) fn ceilings(&self, account: &str, model: &str, default: Ceilings) -> Ceilings {
        self.cache
            .settings()
            .limits
            .ceilings(account, model, default)
    }

    pub(crate) fn limits(&self) -> Vec<LimitRule> {
        self.cache.settings().limits.all()
    }

    /// Number and sum of the holds of this gateway's calls.
    pub(crate) fn all_held(&self) -> (usize, NanoUsd) {
        let amount = NanoUsd::new(self.open_amount.load(Relaxed));
        (self.open_holds.load(Relaxed), amount)
    }

    pub(crate) fn health(&self) -> &Health {
        &self.inner.health
    }

    pub(crate) fn violations(&self) -> usize {
        self.frozen.load(Relaxed)
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Waits until everything queued before is written, so that queries see it. After a timeout it returns all the
    /// same: if nothing can be written, stored data can still be read.
    async fn wait_until_written(&self) {
        let written = futures_util::future::join_all(self.lanes.iter().map(Lane::drained));
        let _ = timeout(WRITING_TIMEOUT, written).await;
    }

    fn submit(&self, operation: Operation) {
        self.inner.health.queued();
        self.lane(&operation.account_id).submit(operation);
    }

    fn lane(&self, account_id: &str) -> &Lane {
        &self.lanes[lane_of(&self.hasher, account_id)]
    }
}

/// The lane of an account. All operations of an account use the same lane, which keeps them in order.
fn lane_of(hasher: &RandomState, account_id: &str) -> usize {
    let lanes = u64::try_from(LANES).unwrap_or(1);
    usize::try_from(hasher.hash_one(account_id) % lanes).unwrap_or(0)
}

fn caller(digest: KeyDigest, known: KnownCaller, settings: i64, fresh: bool) -> Caller {
    Caller {
        account_id: known.account_id,
        payer: known.payer,
        terms: known.terms,
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
