//! Circuit breaker: stops sending requests to a deployment that fails too often.
//!
//! A closed circuit allows requests. An open one is skipped while other deployments are available. When its cooldown
//! is over the circuit is half-open: one trial is let through, and closes the circuit if it succeeds or opens it for
//! twice as long if it fails. Pure: the caller passes the time.

use std::time::{Duration, Instant};

/// The circuit opens after this many consecutive failures …
const MAX_CONSECUTIVE_FAILURES: u32 = 5;
/// … or when this many of the last [`RECENT_OUTCOMES`] attempts failed, once there were [`MIN_OUTCOMES`].
const MAX_RECENT_FAILURES: u32 = 10;
const RECENT_OUTCOMES: u32 = 20;
const MIN_OUTCOMES: u32 = 10;
/// How long the circuit stays open at first; the time doubles up to [`MAX_COOLDOWN`].
const FIRST_COOLDOWN: Duration = Duration::from_secs(1);
const MAX_COOLDOWN: Duration = Duration::from_secs(30);
/// Longest cooldown that a provider can request with `Retry-After`.
const MAX_REQUESTED_COOLDOWN: Duration = Duration::from_mins(1);

/// The circuit breaker of one deployment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Circuit {
    consecutive_failures: u32,
    /// Outcomes of the recent attempts, the newest in the lowest bit; a set bit is a failure.
    recent: u32,
    recent_count: u32,
    /// End of the cooldown; `None` if the circuit is closed.
    open_until: Option<Instant>,
    /// How often failures have opened the circuit since it was last closed.
    times_opened: u32,
    /// Whether an attempt is running while the circuit is not closed.
    trial_running: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CircuitState {
    Closed,
    Open,
    /// The cooldown is over, and the trial has not ended yet.
    HalfOpen,
}

impl CircuitState {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

impl Circuit {
    pub(crate) fn state(&self, now: Instant) -> CircuitState {
        match self.open_until {
            None => CircuitState::Closed,
            Some(until) if now < until => CircuitState::Open,
            Some(_) => CircuitState::HalfOpen,
        }
    }

    /// Whether an attempt may start now, given that other deployments are available.
    pub(crate) fn allows_attempt(&self, now: Instant) -> bool {
        match self.state(now) {
            CircuitState::Closed => true,
            CircuitState::Open => false,
            CircuitState::HalfOpen => !self.trial_running,
        }
    }

    /// The end of the cooldown; `None` if the circuit is closed.
    pub(crate) fn open_until(&self) -> Option<Instant> {
        self.open_until
    }

    /// Whether failures have opened the circuit since it was last closed. A `Retry-After` alone does not count.
    pub(crate) fn has_opened(&self) -> bool {
        self.times_opened > 0
    }

    pub(crate) fn consecutive_failures(&self) -> u32 {
        self.consecutive_failures
    }

    /// Records that an attempt starts. If the circuit is not closed, the attempt is a trial.
    pub(crate) fn start_attempt(&mut self) {
        self.trial_running = self.open_until.is_some();
    }

    /// Records that an attempt ended without an outcome, which counts neither as success nor as failure.
    pub(crate) fn abandon_attempt(&mut self) {
        self.trial_running = false;
    }

    /// Records a success; an open or half-open circuit closes and forgets its past.
    pub(crate) fn record_success(&mut self) {
        if self.open_until.is_some() {
            *self = Self::default();
        }
        self.consecutive_failures = 0;
        self.push_outcome(false);
    }

    /// Records a failure, which may open the circuit. `retry_after` is the cooldown that the provider requested; it
    /// opens the circuit at the first failure.
    pub(crate) fn record_failure(&mut self, now: Instant, retry_after: Option<Duration>) {
        let was_trial = std::mem::take(&mut self.trial_running);
        self.consecutive_failures += 1;
        self.push_outcome(true);
        let many_recent =
            self.recent_count >= MIN_OUTCOMES && self.recent.count_ones() >= MAX_RECENT_FAILURES;
        let opens =
            was_trial || self.consecutive_failures >= MAX_CONSECUTIVE_FAILURES || many_recent;
        let mut cooldown = retry_after.map(|cooldown| cooldown.min(MAX_REQUESTED_COOLDOWN));
        if opens && self.state(now) != CircuitState::Open {
            let backoff = FIRST_COOLDOWN.saturating_mul(1 << self.times_opened.min(16));
            cooldown = cooldown.max(Some(backoff.min(MAX_COOLDOWN)));
            self.times_opened += 1;
        }
        if let Some(cooldown) = cooldown {
            self.open_until = self.open_until.max(Some(now + cooldown));
        }
    }

    fn push_outcome(&mut self, failed: bool) {
        let mask = (1 << RECENT_OUTCOMES) - 1;
        self.recent = (self.recent << 1 | u32::from(failed)) & mask;
        self.recent_count = (self.recent_count + 1).min(RECENT_OUTCOMES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(circuit: &mut Circuit, now: Instant, times: u32) {
        for _ in 0..times {
            circuit.start_attempt();
            circuit.record_failure(now, None);
        }
    }

    #[test]
    fn opens_after_five_consecutive_failures() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        fail(&mut circuit, now, 4);
        assert!(circuit.allows_attempt(now));
        circuit.record_success();
        fail(&mut circuit, now, 4);
        assert_eq!(
            circuit.state(now),
            CircuitState::Closed,
            "a success resets the count"
        );
        fail(&mut circuit, now, 1);
        assert_eq!(circuit.state(now), CircuitState::Open);
        assert!(!circuit.allows_attempt(now + Duration::from_millis(999)));
        assert!(circuit.allows_attempt(now + FIRST_COOLDOWN));
    }

    #[test]
    fn opens_when_half_of_the_recent_attempts_failed() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        for round in 1..=10 {
            assert_eq!(circuit.state(now), CircuitState::Closed, "round {round}");
            circuit.record_success();
            fail(&mut circuit, now, 1);
        }
        assert_eq!(circuit.state(now), CircuitState::Open);
    }

    #[test]
    fn one_trial_closes_the_circuit_or_opens_it_for_longer() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        fail(&mut circuit, now, 5);
        let later = now + FIRST_COOLDOWN;
        circuit.start_attempt();
        assert_eq!(circuit.state(later), CircuitState::HalfOpen);
        assert!(!circuit.allows_attempt(later), "one trial at a time");
        circuit.abandon_attempt();
        assert!(circuit.allows_attempt(later), "the trial had no outcome");
        circuit.start_attempt();
        circuit.record_failure(later, None);
        assert!(
            !circuit.allows_attempt(later + FIRST_COOLDOWN),
            "twice as long"
        );
        assert!(circuit.allows_attempt(later + 2 * FIRST_COOLDOWN));
        circuit.start_attempt();
        circuit.record_success();
        assert_eq!(circuit.state(later), CircuitState::Closed);
        fail(&mut circuit, later, 4);
        assert_eq!(
            circuit.state(later),
            CircuitState::Closed,
            "with a clean slate"
        );
    }

    #[test]
    fn cooldowns_grow_up_to_a_limit() {
        let (mut circuit, mut now) = (Circuit::default(), Instant::now());
        for _ in 0..40 {
            fail(&mut circuit, now, 5);
            now = circuit.open_until().unwrap();
        }
        fail(&mut circuit, now, 1);
        assert_eq!(circuit.open_until().unwrap() - now, MAX_COOLDOWN);
    }

    #[test]
    fn retry_after_opens_the_circuit() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        circuit.record_failure(now, Some(Duration::from_secs(20)));
        assert!(!circuit.allows_attempt(now + Duration::from_secs(19)));
        assert!(circuit.allows_attempt(now + Duration::from_secs(20)));
        circuit.record_failure(now, Some(Duration::from_hours(1)));
        assert!(
            circuit.allows_attempt(now + MAX_REQUESTED_COOLDOWN),
            "limited to the longest cooldown"
        );
    }
}
