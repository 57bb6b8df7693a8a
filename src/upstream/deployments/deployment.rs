//! One deployment: a model at a provider, with its circuit breaker and counters.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use super::circuit::{Circuit, CircuitState};
use crate::{catalog::Prices, upstream::Provider, wire::error::UpstreamError};

/// Weight of the latest measurement in the moving average of the time to first byte.
const LATEST_WEIGHT: f64 = 0.2;

/// One model at one provider, ready for attempts.
pub(crate) struct Deployment {
    /// The provider's name in the configuration.
    pub name: Arc<str>,
    pub provider: Arc<Provider>,
    /// The provider's name in traces.
    pub vendor: Arc<str>,
    pub upstream_model: Arc<str>,
    pub weight: u32,
    pub priority: u32,
    /// Timeout from the request to the last byte of the response.
    pub total_timeout: Duration,
    /// The provider's prices for the operator, if configured.
    pub cost: Option<Arc<Prices>>,
    pub record: Arc<Record>,
}

/// Circuit breaker and counters of one configured deployment: shared by all models it serves (`*`), and kept when the
/// configuration is reloaded.
#[derive(Default)]
pub(crate) struct Record(Mutex<Counts>);

/// A snapshot of a [`Record`].
#[derive(Clone, Default)]
pub(crate) struct Counts {
    pub circuit: Circuit,
    /// Attempts in progress.
    pub running: u64,
    /// Attempts that succeeded.
    pub answered: u64,
    pub failed: u64,
    /// Moving average of the seconds to the first byte.
    pub first_byte: Option<f64>,
    pub last_failure: Option<(SystemTime, String)>,
}

impl Record {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn snapshot(&self) -> Counts {
        self.counts().clone()
    }

    pub(crate) fn allows_attempt(&self, now: Instant) -> bool {
        self.counts().circuit.allows_attempt(now)
    }

    pub(crate) fn open_until(&self) -> Option<Instant> {
        self.counts().circuit.open_until()
    }

    pub(crate) fn first_byte(&self) -> Option<f64> {
        self.counts().first_byte
    }
}

/// An attempt in progress. If it is dropped without an outcome, it counts neither as success nor as failure.
pub(crate) struct RunningAttempt {
    pub deployment: Arc<Deployment>,
    started: Instant,
    outcome_recorded: bool,
}

impl RunningAttempt {
    pub(crate) fn start(deployment: Arc<Deployment>, now: Instant) -> Self {
        {
            let mut counts = deployment.record.counts();
            counts.circuit.start_attempt();
            counts.running += 1;
        }
        Self {
            deployment,
            started: now,
            outcome_recorded: false,
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Records that the provider has begun to respond.
    pub(crate) fn succeeded(mut self) {
        self.outcome_recorded = true;
        let seconds = self.started.elapsed().as_secs_f64();
        let mut counts = self.deployment.record.counts();
        counts.circuit.record_success();
        counts.answered += 1;
        let before = counts.first_byte.unwrap_or(seconds);
        counts.first_byte = Some(before + (seconds - before) * LATEST_WEIGHT);
    }

    /// Records a failure, and logs when it opens the circuit. A failure that every provider would report for this
    /// request is not counted.
    pub(crate) fn failed(mut self, error: &UpstreamError) {
        if !error.is_worth_another_try() {
            return;
        }
        self.outcome_recorded = true;
        let mut counts = self.deployment.record.counts();
        counts.failed += 1;
        counts.last_failure = Some((SystemTime::now(), error.to_string()));
        let now = Instant::now();
        let before = counts.circuit.state(now);
        counts.circuit.record_failure(now, error.retry_after());
        let after = counts.circuit.state(now);
        let open_until = counts.circuit.open_until();
        drop(counts);
        if before == CircuitState::Closed && after == CircuitState::Open {
            let (upstream, model) = (&*self.deployment.name, &*self.deployment.upstream_model);
            let seconds = open_until.map_or(0.0, |until| (until - now).as_secs_f64());
            tracing::warn!(
                upstream,
                %error,
                "circuit opened for deployment {upstream}/{model}; next attempt in {seconds:.1} s"
            );
        }
    }
}

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        let mut counts = self.deployment.record.counts();
        counts.running -= 1;
        if !self.outcome_recorded {
            counts.circuit.abandon_attempt();
        }
    }
}
