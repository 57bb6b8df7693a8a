//! This gateway's place among the others: a slot, an epoch, and a lease that it renews.
//!
//! A gateway whose lease has run out is taken for dead, and what it had set aside is freed by the
//! others. If it was only asleep it takes a new lease before it sets anything else aside.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde::Deserialize;
use tokio_postgres::types::Type;

use super::{Inner, pool::Pool};
use crate::{
    ledger::{CallId, clock::Clock},
    postgres::Error,
};

/// How long a gateway lives without a sign of life.
pub const LEASE_SECONDS: i32 = 20;
const BEAT: Duration = Duration::from_secs(5);
/// How often a beat that failed is tried again.
const TRIAL_INTERVAL: Duration = Duration::from_millis(500);
/// How many accounts are freed in one transaction.
const AT_ONCE: i32 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Lease {
    pub slot: i32,
    pub epoch: i64,
    /// The last call that there was when it began.
    after: u64,
}

impl Lease {
    pub async fn begin(pool: &Pool) -> Result<Self, Error> {
        let begun: Option<String> = pool
            .ask_one(
                "SELECT begin_gateway($1)::text",
                &[(&LEASE_SECONDS, Type::INT4)],
            )
            .await?;
        let begun = begun.and_then(|text| serde_json::from_str(&text).ok());
        begun.ok_or_else(|| Error::Unexpected("1,024 gateways run already".into()))
    }

    async fn beat(self, pool: &Pool) -> Result<bool, Error> {
        let lease = [
            (&self.slot as _, Type::INT4),
            (&self.epoch as _, Type::INT8),
            (&LEASE_SECONDS as _, Type::INT4),
        ];
        pool.ask_one("SELECT beat($1, $2, $3)", &lease).await
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

/// Renews the lease and frees what the dead have left, as long as the ledger lives.
pub async fn keep(inner: Weak<Inner>) {
    loop {
        let wait = {
            let Some(inner) = inner.upgrade() else { return };
            if inner.closing.load(Relaxed) {
                return;
            }
            match renew(&inner).await {
                Ok(()) => BEAT,
                Err(error) => {
                    tracing::warn!(%error, "the lease of this gateway could not be renewed yet");
                    TRIAL_INTERVAL
                }
            }
        };
        let Some(wanted) = inner.upgrade().map(|inner| inner.lease_wanted.clone()) else {
            return;
        };
        // Sooner when a hold was refused for want of a lease.
        let _ = tokio::time::timeout(wait, wanted.notified()).await;
    }
}

async fn renew(inner: &Inner) -> Result<(), Error> {
    let lease = **inner.lease.load();
    if !lease.beat(&inner.pool).await? {
        let new = Lease::begin(&inner.pool).await?;
        tracing::warn!(
            slot = new.slot,
            "the lease of this gateway had run out; it has a new one"
        );
        inner.lease.store(Arc::new(new));
    }
    loop {
        let freed: i32 = inner
            .pool
            .ask_one("SELECT free_the_dead($1)", &[(&AT_ONCE, Type::INT4)])
            .await?;
        if freed == 0 {
            return Ok(());
        }
        tracing::info!(
            holds = freed,
            "freed what a gateway that died had set aside"
        );
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
