//! This gateway's lease: a slot and an epoch, renewed by heartbeats.
//!
//! A gateway that has not renewed its lease for the lease's length, by the clocks of the others, counts as dead, and
//! the others release its holds. If it was only paused, it takes a new lease before it holds anything else, and renews
//! the holds of its running calls.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use serde::Deserialize;
use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::{
    Inner,
    operations::Operation,
    peers::{Peers, Silence},
    pool::Pool,
};
use crate::{
    base::{
        clock::Clock,
        clock_offset::{ClockOffset, monotonic_ms},
        outage::Outage,
    },
    db::postgres::Error,
    ledger::CallId,
};

/// How often a failed heartbeat is tried again.
const TRIAL_INTERVAL: Duration = Duration::from_millis(500);
/// For how many accounts holds are released in one transaction.
const RELEASE_BATCH: i32 = 100;

/// How long a lease lasts without a heartbeat, and the interval of heartbeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub lease: Duration,
    pub beat: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(20),
            beat: Duration::from_secs(5),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Lease {
    pub slot: i32,
    pub epoch: i64,
    /// The highest call ID when the lease began.
    after: u64,
}

/// The reply to a heartbeat.
#[derive(Deserialize)]
struct Beat {
    alive: bool,
    now_ms: i64,
    /// Epochs of the other gateways, and how often each has renewed its lease.
    peers: Vec<(i64, i64)>,
}

impl Lease {
    pub(crate) async fn begin(pool: &Pool, times: Times) -> Result<Self, Error> {
        let lease_seconds = i32::try_from(times.lease.as_secs()).unwrap_or(i32::MAX);
        let lease: Option<String> = pool
            .query_one(
                "SELECT begin_gateway($1)::text",
                &[(&lease_seconds, Type::INT4)],
            )
            .await?;
        let lease = lease.and_then(|text| serde_json::from_str(&text).ok());
        lease.ok_or_else(|| Error::Unexpected("1,024 gateways run already".into()))
    }

    /// Renews the lease. The timeout is short, so that another connection is tried long before the lease ends.
    async fn beat(self, pool: &Pool, within: Duration) -> Result<Beat, Error> {
        let lease = [
            (&self.slot as _, Type::INT4),
            (&self.epoch as _, Type::INT8),
        ];
        let query = pool.query_one("SELECT beat($1, $2)::text", &lease);
        let text: String = timeout(within, query)
            .await
            .map_err(|_| Error::TimedOut)??;
        serde_json::from_str(&text).map_err(|_| {
            Error::Unexpected("the reply to a heartbeat cannot be parsed by this version".into())
        })
    }

    /// Ends the lease, so that the others need not wait until it expires.
    pub(crate) async fn end(self, pool: &Pool, run: i64) -> Result<(), Error> {
        let gone = "WITH gone AS (DELETE FROM lanes WHERE run = $3)
            DELETE FROM gateways WHERE slot = $1 AND epoch = $2";
        let lease = [
            (&self.slot as _, Type::INT4),
            (&self.epoch as _, Type::INT8),
            (&run as _, Type::INT8),
        ];
        pool.execute(gone, &lease).await.map(|_| ())
    }
}

/// State kept from one heartbeat to the next.
#[derive(Default)]
struct Keeper {
    peers: Peers,
    clock: Option<ClockOffset>,
}

/// Renews the lease and releases the holds of dead gateways, as long as the ledger exists. `submit` takes the renewals
/// of holds.
pub(crate) async fn keep(inner: Weak<Inner>, submit: impl Fn(Operation)) {
    let mut keeper = Keeper::default();
    let mut renewing = Outage::new("renewing the lease of this gateway");
    loop {
        let wait = {
            let Some(inner) = inner.upgrade() else { return };
            if inner.closing.load(Relaxed) {
                return;
            }
            match keeper.renew(&inner, &submit).await {
                Ok(wait) => {
                    renewing.works();
                    wait
                }
                Err(error) => {
                    renewing.fails(&error);
                    TRIAL_INTERVAL.min(inner.times.beat)
                }
            }
        };
        let Some(needed) = inner.upgrade().map(|inner| inner.lease_needed.clone()) else {
            return;
        };
        // Earlier if a hold was refused because the lease was lost.
        let _ = timeout(wait, needed.notified()).await;
    }
}

impl Keeper {
    /// Renews the lease, releases the holds of dead gateways, and returns the time until the next heartbeat.
    async fn renew(
        &mut self,
        inner: &Inner,
        submit: impl Fn(Operation),
    ) -> Result<Duration, Error> {
        let Times { beat, .. } = inner.times;
        // A silent gateway is observed more often, because its holds block credit.
        let soon = beat / 5;
        let lease = **inner.lease.load();
        let sent_ms = monotonic_ms();
        let reply = lease.beat(&inner.pool, beat).await?;
        self.compare_clocks(inner, reply.now_ms, sent_ms);
        // A lease that this gateway has ended itself, because it stops, is not lost.
        if !reply.alive && inner.closing.load(Relaxed) {
            return Ok(beat);
        }
        if !reply.alive {
            let new = Lease::begin(&inner.pool, inner.times).await?;
            inner.lease.store(Arc::new(new));
            let renewals = inner.open_calls.renewals();
            tracing::warn!(
                slot = new.slot,
                holds = renewals.len(),
                "the lease of this gateway had expired; it has a new one, and renews the holds of its running calls"
            );
            renewals.into_iter().for_each(submit);
            // Dead gateways are handled in the next round, so that holds which the new lease takes over are not
            // released.
            return Ok(soon);
        }
        let silence = self
            .peers
            .observe(Instant::now(), &reply.peers, inner.times);
        release_dead_holds(&inner.pool, &silence).await?;
        Ok(if silence.is_suspected { soon } else { beat })
    }

    fn compare_clocks(&mut self, inner: &Inner, now_ms: i64, sent_ms: i64) {
        let seen = ClockOffset::seen(now_ms, sent_ms, monotonic_ms());
        let jump_ms = self.clock.replace(seen).and_then(|last| last.jump_to(seen));
        if let Some(jump_ms) = jump_ms {
            inner.health.clock_jumps.inc();
            tracing::error!(
                jump_ms,
                "PostgreSQL's clock was set by this many milliseconds, or another server responds. Leases do not depend on it. \
                Credit expires by it, and credit that a clock set forward has expired stays expired: check the time of the \
                server, and the grants that expired since"
            );
        }
    }
}

async fn release_dead_holds(pool: &Pool, silence: &Silence) -> Result<(), Error> {
    loop {
        let parameters = [
            (&RELEASE_BATCH as _, Type::INT4),
            (&silence.epochs as _, Type::INT8_ARRAY),
            (&silence.beats as _, Type::INT8_ARRAY),
        ];
        let query = "SELECT release_dead_holds($1, $2, $3)";
        let released: i32 = pool.query_one(query, &parameters).await?;
        if released == 0 {
            return Ok(());
        }
        tracing::info!(holds = released, "released the holds of a dead gateway");
    }
}

/// Generates call IDs that no other gateway generates, because they contain the slot.
pub(crate) struct SlotIds(AtomicU64);

/// Of the bits that distinguish calls of one millisecond, these count the calls of one gateway.
const COUNT_BITS: u32 = 9;
const SLOT_BITS: u32 = 10;

impl SlotIds {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Makes later IDs of a later millisecond than this one.
    pub(crate) fn go_on_after(&self, id: CallId) {
        let later = ((id.0 >> (SLOT_BITS + COUNT_BITS)) + 1) << COUNT_BITS;
        self.0.fetch_max(later, Relaxed);
    }

    pub(crate) fn next(&self, clock: &Clock, lease: Lease) -> CallId {
        let by_time = u64::try_from(clock.now_ms()).unwrap_or(0) << COUNT_BITS;
        let by_others = ((lease.after >> (SLOT_BITS + COUNT_BITS)) + 1) << COUNT_BITS;
        let following = |last: u64| (last + 1).max(by_time).max(by_others);
        let last = self
            .0
            .fetch_update(Relaxed, Relaxed, |last| Some(following(last)));
        let number = following(last.unwrap_or_else(|last| last));
        let (ms, count) = (number >> COUNT_BITS, number & ((1 << COUNT_BITS) - 1));
        let slot = u64::try_from(lease.slot).unwrap_or(0);
        CallId((ms << (SLOT_BITS + COUNT_BITS)) | (slot << COUNT_BITS) | count)
    }
}
