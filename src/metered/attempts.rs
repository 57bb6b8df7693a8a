//! Failover: tries the deployments of a model one after the other until one starts to answer.
//!
//! Nothing of a failed attempt has reached the client, so another one can be made. Once something has, there is no second
//! attempt: answers of two providers are never spliced.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rand::RngExt as _;

use super::{Admitted, Client};
use crate::{
    catalog::Model,
    gateway::{Gateway, Routes},
    ledger::Attempt,
    prompt::ChatCall,
    routing::Reason,
    upstream::deployments::{Record, RunningAttempt},
    wire::error::UpstreamError,
};

/// The pause before deployments are tried a second time, and how far it may grow.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// No other model is tried after this long, because most clients have given up by then.
const LONGEST_WAIT: Duration = Duration::from_mins(10);

/// The attempts of one step.
///
/// Each deployment is tried once before any is tried again. A model with one deployment has one attempt: a retry is left
/// to the client.
pub(crate) struct Attempts<'a> {
    gateway: &'a Gateway,
    routes: Arc<Routes>,
    /// The client, as long as its response has not started.
    client: Option<&'a Client>,
    started: Instant,
    /// When the first model was tried.
    begun_at: Instant,
    tried: Vec<Arc<Record>>,
    made: u32,
    pause: Duration,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(gateway: &'a Gateway, client: Option<&'a Client>) -> Self {
        let now = Instant::now();
        Self {
            gateway,
            routes: gateway.routes(),
            client,
            started: now,
            begun_at: now,
            tried: Vec::new(),
            made: 0,
            pause: FIRST_PAUSE,
        }
    }

    /// Starts an attempt with the next deployment.
    pub(crate) fn next(
        &mut self,
        call: &ChatCall,
        admitted: &mut Admitted,
    ) -> Result<RunningAttempt, UpstreamError> {
        let model = &call.route.target.id;
        if call.needs_native() {
            self.skip_others(model);
        }
        let attempt = self.routes.deployments.pick(model, &self.tried);
        let attempt =
            attempt.ok_or_else(|| UpstreamError::Connect("no deployment is left to try".into()))?;
        self.made += 1;
        admitted.set_deployment(&attempt.deployment);
        admitted.spans.begin(call, &attempt.deployment);
        Ok(attempt)
    }

    /// Treats deployments that cannot serve a request of the Messages API as it is like those that were tried.
    fn skip_others(&mut self, model: &str) {
        for record in self.routes.deployments.not_native(model) {
            if !self.tried.iter().any(|tried| Arc::ptr_eq(tried, record)) {
                self.tried.push(record.clone());
            }
        }
    }

    /// Ends the attempts: this one has started to answer.
    pub(crate) fn answered(self, attempt: RunningAttempt) {
        let name = &attempt.deployment.name;
        self.gateway.metrics.attempted(name, "answered");
        attempt.succeeded();
    }

    /// Records a failed attempt. Returns when the next one can start, or the error if there is none.
    pub(crate) async fn failed(
        &mut self,
        attempt: RunningAttempt,
        error: UpstreamError,
        call: &ChatCall,
        admitted: &mut Admitted,
    ) -> Result<(), UpstreamError> {
        self.record(&attempt, &error, admitted);
        self.tried.push(attempt.deployment.record.clone());
        attempt.failed(&error);
        let all = self.routes.deployments.count(&call.route.target.id);
        if !error.is_worth_another_try() || all < 2 || self.is_exhausted() {
            return Err(error);
        }
        if self.tried.len() >= all {
            self.tried.clear();
            // With jitter, so that calls that failed together are not retried together.
            let jitter = rand::rng().random_range(0.5..1.0);
            tokio::time::sleep(self.pause.mul_f64(jitter)).await;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        Ok(())
    }

    /// Records an answer that another model should improve on. It does not count against the deployment.
    pub(crate) fn rejected_answer(
        &self,
        attempt: RunningAttempt,
        error: &UpstreamError,
        admitted: &mut Admitted,
    ) {
        self.record(&attempt, error, admitted);
        attempt.succeeded();
    }

    fn record(&self, attempt: &RunningAttempt, error: &UpstreamError, admitted: &mut Admitted) {
        let name = &attempt.deployment.name;
        admitted.spans.failed(error);
        self.gateway.metrics.attempted(name, error.kind());
        if let Some(status) = error.status().filter(|_| error.is_operators_fault()) {
            self.gateway.alerts.refused(name, status);
        }
        admitted.failed_attempt(Attempt {
            upstream: name.to_string(),
            failure: error.to_string(),
            ms: u64::try_from(attempt.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
    }

    /// Moves a hybrid's call to another target, after all deployments of the current one failed or its answer was poor
    /// (`only_better`). Returns whether there is one to try.
    ///
    /// A late answer is better than none, but only while the client waits.
    pub(crate) fn escalates(
        &mut self,
        call: &mut ChatCall,
        error: &UpstreamError,
        admitted: &mut Admitted,
        only_better: bool,
    ) -> bool {
        let Some(reason) = escalation(error) else {
            return false;
        };
        let left =
            self.client.is_some_and(Client::has_left) || self.begun_at.elapsed() > LONGEST_WAIT;
        // Targets can share a deployment: one whose circuit is open by now is not tried again for each of them.
        let (deployments, now) = (&self.routes.deployments, Instant::now());
        let healthy = |model: &Model| deployments.is_healthy(&model.id, now);
        call.route.keep_healthy(healthy);
        let fits = !only_better || call.route.can_improve();
        if left || !fits || !call.escalate(reason) {
            return false;
        }
        admitted.set_route(&call.route);
        self.tried.clear();
        self.made = 0;
        self.started = Instant::now();
        self.pause = FIRST_PAUSE;
        true
    }

    /// Whether no further attempt may start: too many, too long, or the client has left.
    fn is_exhausted(&self) -> bool {
        let routing = self.routes.routing;
        self.made >= routing.attempts
            || self.started.elapsed() > routing.timeout
            || self.client.is_some_and(Client::has_left)
    }
}

/// The reason to try another model after a failure, or `None` if it would fail alike.
fn escalation(error: &UpstreamError) -> Option<Reason> {
    match error {
        UpstreamError::Empty => Some(Reason::TierEscalatedEmpty),
        UpstreamError::NotJson => Some(Reason::TierEscalatedNotJson),
        error if !error.is_worth_another_try() => None,
        UpstreamError::FirstByte(_) | UpstreamError::Idle(_) | UpstreamError::TooLong(_) => {
            Some(Reason::TierEscalatedTimeout)
        }
        _ => Some(Reason::TierEscalated5xx),
    }
}
