//! One upstream after the other, until one begins to answer.
//!
//! Nothing of a failed attempt has reached the client, so another one can be made. Once something
//! has, there is no second attempt: half of one answer and half of another are none.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rand::RngExt as _;

use super::{Admitted, Begun};
use crate::{
    catalog::Model,
    gateway::{Gateway, Routes},
    ledger::Attempt,
    prompt::ChatCall,
    routing::Reason,
    upstream::deployments::{Record, RunningAttempt},
    wire::error::UpstreamError,
};

/// The pause before an upstream is asked a second time, and how far it may grow.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// After so long most clients have given up, and no other model is asked.
const LONGEST_WAIT: Duration = Duration::from_mins(10);

/// The upstreams of one call, in the order in which they are asked.
///
/// Each is asked once before any is asked again, and that only where there is more than one: a lone
/// upstream that failed is the client's to try again.
pub struct Attempts<'a> {
    gateway: &'a Gateway,
    routes: Arc<Routes>,
    /// Where a client waits that can leave.
    begun: Option<&'a Begun>,
    started: Instant,
    /// When the first model was asked.
    begun_at: Instant,
    tried: Vec<Arc<Record>>,
    made: u32,
    pause: Duration,
}

impl<'a> Attempts<'a> {
    pub fn new(gateway: &'a Gateway, begun: Option<&'a Begun>) -> Self {
        let now = Instant::now();
        Self {
            gateway,
            routes: gateway.routes(),
            begun,
            started: now,
            begun_at: now,
            tried: Vec::new(),
            made: 0,
            pause: FIRST_PAUSE,
        }
    }

    /// The next upstream to ask.
    pub fn next(
        &mut self,
        call: &ChatCall,
        admitted: &mut Admitted<'_>,
    ) -> Result<RunningAttempt, UpstreamError> {
        let model = &call.route.target.id;
        let asking = self.routes.deployments.pick(model, &self.tried);
        let asking = asking.ok_or_else(|| UpstreamError::Connect("nobody to ask".into()))?;
        self.made += 1;
        admitted.asks(&asking.deployment);
        Ok(asking)
    }

    /// It has begun to answer: there is no other attempt.
    pub fn answered(self, asking: RunningAttempt) {
        let name = &asking.deployment.name;
        self.gateway.metrics.attempted(name, "answered");
        asking.succeeded();
    }

    /// It failed. Returns when another one can be asked, or with the failure if none is.
    pub async fn failed(
        &mut self,
        asking: RunningAttempt,
        error: UpstreamError,
        call: &ChatCall,
        admitted: &mut Admitted<'_>,
    ) -> Result<(), UpstreamError> {
        self.note(&asking, &error, admitted);
        self.tried.push(asking.deployment.record.clone());
        asking.failed(&error);
        let all = self.routes.deployments.count(&call.route.target.id);
        if !error.is_worth_another_try() || all < 2 || self.is_enough() {
            return Err(error);
        }
        if self.tried.len() >= all {
            self.tried.clear();
            // Part of it by chance, so that calls that failed together do not return together.
            let jitter = rand::rng().random_range(0.5..1.0);
            tokio::time::sleep(self.pause.mul_f64(jitter)).await;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        Ok(())
    }

    /// It answered, but another model is asked all the same. That is no fault of the upstream's.
    pub fn disappointed(
        &self,
        asking: RunningAttempt,
        error: &UpstreamError,
        admitted: &mut Admitted<'_>,
    ) {
        self.note(&asking, error, admitted);
        asking.succeeded();
    }

    fn note(&self, asking: &RunningAttempt, error: &UpstreamError, admitted: &mut Admitted<'_>) {
        let name = &asking.deployment.name;
        self.gateway.metrics.attempted(name, error.kind());
        if let Some(status) = error.status().filter(|_| error.is_operators_fault()) {
            self.gateway.alerts.refused(name, status);
        }
        admitted.failed_attempt(Attempt {
            upstream: name.to_string(),
            failure: error.to_string(),
            ms: u64::try_from(asking.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
    }

    /// All upstreams of the call's model have failed it, or its answer is poor and somebody better is
    /// wanted. Whether another model is asked instead.
    ///
    /// A client that still waits would rather have a late answer than none, but none waits for ever.
    pub fn escalates(
        &mut self,
        call: &mut ChatCall,
        error: &UpstreamError,
        admitted: &mut Admitted<'_>,
        only_better: bool,
    ) -> bool {
        let Some(reason) = escalation(error) else {
            return false;
        };
        let left =
            self.begun.is_some_and(Begun::is_closed) || self.begun_at.elapsed() > LONGEST_WAIT;
        // Targets can share an upstream: one that is left alone by now is not asked again for each.
        let (deployments, now) = (&self.routes.deployments, Instant::now());
        let healthy = |model: &Model| deployments.is_healthy(&model.id, now);
        call.route.keep_healthy(healthy);
        let fits = !only_better || call.route.can_improve();
        if left || !fits || !call.escalate(reason) {
            return false;
        }
        admitted.goes_to(&call.route);
        self.tried.clear();
        self.made = 0;
        self.started = Instant::now();
        self.pause = FIRST_PAUSE;
        true
    }

    /// For a client that has left, nobody new is asked: it would be for nothing.
    fn is_enough(&self) -> bool {
        let routing = self.routes.routing;
        self.made >= routing.attempts
            || self.started.elapsed() > routing.timeout
            || self.begun.is_some_and(Begun::is_closed)
    }
}

/// Why a failure is one that another model might not have; none where it would.
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
