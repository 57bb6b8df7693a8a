//! This gateway's place among the others: a slot, an epoch, and a lease that it renews.
//!
//! A gateway that has not renewed its lease for its length, by the clocks of those that watch it, is taken
//! for dead, and its holds are released by the others. If it was only paused it takes a new lease before it
//! holds anything else, and renews the holds of the calls that it still has under way.

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
    peers::{Peers, Silence},
    pool::Pool,
    steps::Step,
};
use crate::{
    base::{
        clock::Clock,
        clock_offset::{ClockOffset, monotonic_ms},
    },
    db::postgres::Error,
    ledger::CallId,
};

/// How often a beat that failed is tried again.
const TRIAL_INTERVAL: Duration = Duration::from_millis(500);
/// How many accounts are freed in one transaction.
const AT_ONCE: i32 = 100;

/// How long a gateway lives without a sign of life, and how often it gives one.
#[derive(Clone, Copy, Debug)]
pub struct Times {
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
pub struct Lease {
    pub slot: i32,
    pub epoch: i64,
    /// The last call that there was when it began.
    after: u64,
}

/// What the database answers to a beat.
#[derive(Deserialize)]
struct Beat {
    alive: bool,
    now_ms: i64,
    /// The others' epochs, and how often each has renewed its lease.
    peers: Vec<(i64, i64)>,
}

impl Lease {
    pub async fn begin(pool: &Pool, times: Times) -> Result<Self, Error> {
        let lease_seconds = i32::try_from(times.lease.as_secs()).unwrap_or(i32::MAX);
        let begun: Option<String> = pool
            .ask_one(
                "SELECT begin_gateway($1)::text",
                &[(&lease_seconds, Type::INT4)],
            )
            .await?;
        let begun = begun.and_then(|text| serde_json::from_str(&text).ok());
        begun.ok_or_else(|| Error::Unexpected("1,024 gateways run already".into()))
    }

    /// A beat that is not heard soon is tried on another connection, long before the lease is over.
    async fn beat(self, pool: &Pool, within: Duration) -> Result<Beat, Error> {
        let lease = [
            (&self.slot as _, Type::INT4),
            (&self.epoch as _, Type::INT8),
        ];
        let asked = pool.ask_one("SELECT beat($1, $2)::text", &lease);
        let text: String = timeout(within, asked)
            .await
            .map_err(|_| Error::TimedOut)??;
        serde_json::from_str(&text)
            .map_err(|_| Error::Unexpected("a lease was answered in words unknown here".into()))
    }

    /// The gateway has ended: nobody need wait for its lease to run out.
    pub async fn end(self, pool: &Pool, run: i64) -> Result<(), Error> {
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

/// What is remembered from one beat to the next.
#[derive(Default)]
struct Keeper {
    peers: Peers,
    clock: Option<ClockOffset>,
}

/// Renews the lease and frees what the dead have left, as long as the ledger lives. `hand_in` takes the
/// renewals of holds.
pub async fn keep(inner: Weak<Inner>, hand_in: impl Fn(Step)) {
    let mut keeper = Keeper::default();
    loop {
        let wait = {
            let Some(inner) = inner.upgrade() else { return };
            if inner.closing.load(Relaxed) {
                return;
            }
            match keeper.renew(&inner, &hand_in).await {
                Ok(wait) => wait,
                Err(error) => {
                    tracing::warn!(%error, "the lease of this gateway could not be renewed yet");
                    TRIAL_INTERVAL.min(inner.times.beat)
                }
            }
        };
        let Some(wanted) = inner.upgrade().map(|inner| inner.lease_wanted.clone()) else {
            return;
        };
        // Sooner when a hold was refused for want of a lease.
        let _ = timeout(wait, wanted.notified()).await;
    }
}

impl Keeper {
    /// Renews the lease, releases what the dead hold, and says when to come again.
    async fn renew(&mut self, inner: &Inner, hand_in: impl Fn(Step)) -> Result<Duration, Error> {
        let Times { beat, .. } = inner.times;
        // One that is silent is looked at more often: its holds are waited for.
        let soon = beat / 5;
        let lease = **inner.lease.load();
        let sent_ms = monotonic_ms();
        let answer = lease.beat(&inner.pool, beat).await?;
        self.compare_clocks(inner, answer.now_ms, sent_ms);
        if !answer.alive {
            let new = Lease::begin(&inner.pool, inner.times).await?;
            inner.lease.store(Arc::new(new));
            let renewals = inner.open_calls.renewals();
            tracing::warn!(
                slot = new.slot,
                holds = renewals.len(),
                "the lease of this gateway had run out; it has a new one, and renews the holds of its running calls"
            );
            renewals.into_iter().for_each(hand_in);
            // Those that the new lease can take over are not released meanwhile.
            return Ok(soon);
        }
        let silence = self.peers.look(Instant::now(), &answer.peers, inner.times);
        free_the_dead(&inner.pool, &silence).await?;
        Ok(if silence.is_suspected { soon } else { beat })
    }

    fn compare_clocks(&mut self, inner: &Inner, now_ms: i64, sent_ms: i64) {
        let seen = ClockOffset::seen(now_ms, sent_ms, monotonic_ms());
        let jump_ms = self.clock.replace(seen).and_then(|last| last.jump_to(seen));
        if let Some(jump_ms) = jump_ms {
            inner.health.clock_jumps.inc();
            tracing::error!(
                jump_ms,
                "PostgreSQL's clock was set by this many milliseconds, or another server answers. Leases do not go \
                by it. Credit expires by it, and what a clock that was set forward has expired stays so: check the \
                time of the server, and the grants that expired since"
            );
        }
    }
}

async fn free_the_dead(pool: &Pool, silence: &Silence) -> Result<(), Error> {
    loop {
        let parameters = [
            (&AT_ONCE as _, Type::INT4),
            (&silence.epochs as _, Type::INT8_ARRAY),
            (&silence.beats as _, Type::INT8_ARRAY),
        ];
        let query = "SELECT free_the_dead($1, $2, $3)";
        let freed: i32 = pool.ask_one(query, &parameters).await?;
        if freed == 0 {
            return Ok(());
        }
        tracing::info!(holds = freed, "released the holds of a gateway that died");
    }
}

/// Numbers of calls that no other gateway makes: the slot is part of them.
pub struct SlotIds(AtomicU64);

/// Of the bits that tell calls of one millisecond apart, these are for one gateway.
const COUNT_BITS: u32 = 9;
const SLOT_BITS: u32 = 10;

impl SlotIds {
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Calls that come are of a later millisecond than this one.
    pub fn go_on_after(&self, id: CallId) {
        let later = ((id.0 >> (SLOT_BITS + COUNT_BITS)) + 1) << COUNT_BITS;
        self.0.fetch_max(later, Relaxed);
    }

    pub fn next(&self, clock: &Clock, lease: Lease) -> CallId {
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
