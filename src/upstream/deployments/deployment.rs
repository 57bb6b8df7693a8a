//! One upstream that serves a model, and how it has been doing.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use super::circuit::{Circuit, State};
use crate::{catalog::Prices, upstream::Provider, wire::error::UpstreamError};

/// How much the latest answer counts in the average.
const NEWEST_SHARE: f64 = 0.2;

pub struct Deployment {
    /// The provider's name in the configuration, for logs.
    pub name: Arc<str>,
    pub provider: Arc<Provider>,
    pub upstream_model: Arc<str>,
    pub weight: u32,
    pub priority: u32,
    /// How long a whole call may take.
    pub longest: Duration,
    /// What it costs the operator, if the configuration says so.
    pub cost: Option<Arc<Prices>>,
    pub record: Arc<Record>,
}

/// What an upstream has done so far: shared by all models it serves, and kept when the
/// configuration is read anew.
#[derive(Default)]
pub struct Record(Mutex<Counts>);

#[derive(Clone, Default)]
pub struct Counts {
    pub circuit: Circuit,
    pub running: u64,
    pub answered: u64,
    pub failed: u64,
    /// Seconds to the first byte, the latest counting most.
    pub first_byte: Option<f64>,
    pub last_failure: Option<(SystemTime, String)>,
}

impl Record {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn look(&self) -> Counts {
        self.counts().clone()
    }

    pub fn is_inviting(&self, now: Instant) -> bool {
        self.counts().circuit.is_inviting(now)
    }

    pub fn rests_until(&self) -> Option<Instant> {
        self.counts().circuit.rests_until()
    }

    pub fn first_byte(&self) -> Option<f64> {
        self.counts().first_byte
    }
}

/// An upstream that is being asked. Dropped without a word, nothing was learned about it.
pub struct Asking {
    pub deployment: Arc<Deployment>,
    started: Instant,
    heard: bool,
}

impl Asking {
    pub fn begin(deployment: Arc<Deployment>, now: Instant) -> Self {
        {
            let mut counts = deployment.record.counts();
            counts.circuit.asked();
            counts.running += 1;
        }
        Self {
            deployment,
            started: now,
            heard: false,
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// It has begun to answer.
    pub fn answered(mut self) {
        self.heard = true;
        let seconds = self.started.elapsed().as_secs_f64();
        let mut counts = self.deployment.record.counts();
        counts.circuit.answered();
        counts.answered += 1;
        let before = counts.first_byte.unwrap_or(seconds);
        counts.first_byte = Some(before + (seconds - before) * NEWEST_SHARE);
    }

    /// It failed. A request that no provider would take says nothing about this one.
    pub fn failed(mut self, error: &UpstreamError) {
        if !error.is_worth_another_try() {
            return;
        }
        self.heard = true;
        let mut counts = self.deployment.record.counts();
        counts.failed += 1;
        counts.last_failure = Some((SystemTime::now(), error.to_string()));
        let before = counts.circuit.state(Instant::now());
        counts.circuit.failed(Instant::now(), error.retry_after());
        let after = counts.circuit.state(Instant::now());
        drop(counts);
        if before == State::Closed && after == State::Open {
            let upstream = &*self.deployment.name;
            tracing::warn!(upstream, %error, "an upstream is left alone for a while");
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut counts = self.deployment.record.counts();
        counts.running -= 1;
        if !self.heard {
            counts.circuit.unheard();
        }
    }
}
