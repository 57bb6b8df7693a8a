//! Admission of a call, and how it ends: charged or released (§8.1, §8.2, §8.6).

mod settle;

pub(crate) use settle::Settled;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Facts, NotStarted,
    failure::Failure,
    need::{self, Need},
    spans::{self, Admission, Spans},
    tool_loop::milliseconds,
    windows::Windows,
};
use crate::{
    base::{failpoint, money::NanoUsd, timestamp, tokens::TokenCount},
    catalog::Prices,
    gateway::Gateway,
    ledger::{
        Attempt, BudgetShortage, CallId, Caller, Held, HoldRefused, HoldRequest, Idempotency,
        KeyTaken, LedgerError, Outcome, Step,
    },
    prompt::{ChatCall, Route},
    upstream::deployments::Deployment,
    wire::{
        chat::{Answer, Bill, Usage},
        error::{GatewayError, OverBudget, Unpaid},
    },
};

/// How long to wait before a charge that could not be written is retried.
const CHARGE_INTERVAL: Duration = Duration::from_millis(100);

/// An admitted call: its reservation in the window and its hold.
///
/// When it is dropped, the hold is released and the reservation counts as a request without tokens.
pub(crate) struct Admitted {
    pub gateway: Arc<Gateway>,
    reservation: Windows,
    hold: Held,
    prices: Arc<Prices>,
    /// The prices that the operator pays the provider, where the configuration has them.
    provider_prices: Option<Arc<Prices>>,
    /// The tokens that the current step sends.
    input: TokenCount,
    /// The tokens that the current step has reserved in the window.
    reserved: u64,
    /// The tokens of the steps before, which are settled in the window already.
    counted: u64,
    /// The well-known name of the provider.
    vendor: Option<Arc<str>>,
    pub spans: Spans,
}

/// Reserves the window, then places the hold: both or neither.
pub(crate) async fn admit(
    gateway: Arc<Gateway>,
    caller: &Caller,
    request_id: &str,
    call: &ChatCall,
    idempotency: Option<Box<Idempotency>>,
) -> Result<Admitted, NotStarted> {
    let Route {
        requested, target, ..
    } = &call.route;
    let (account_id, model) = (caller.account_id.as_str(), requested.id.as_str());
    // Before anything is reserved, so that this refusal uses up no request of the window.
    if gateway.abandoned.is_at_limit(account_id) {
        let limit = gateway.abandoned.limit();
        return Err(GatewayError::TooManyAbandoned { limit }.into());
    }
    let input = call.count();
    let need = Need::of(call, input);
    let id = gateway.ledger.next_call();
    let reservation = Windows::reserve(&gateway, caller, id, model, need.tokens).await?;
    failpoint::reached("counted");
    let placing = gateway.ledger.hold(HoldRequest {
        id,
        seen: caller.seen,
        reservations: reservation.reservations(),
        request_id,
        account_id,
        payer: &caller.payer,
        secret: caller.digest,
        model,
        routed_model: &target.id,
        prices: target.prices.clone(),
        stream: call.stream,
        reserved_tokens: need.tokens,
        amount: need.amount,
        worst: need.worst,
        decision: call.route.decision_json(),
        agent: call.agent.clone(),
        idempotency,
        overdraft: gateway.max_overdraft,
    });
    let hold = match placing.await {
        Ok(hold) => hold,
        Err(refused) => {
            reservation.cancel();
            return Err(match refused {
                HoldRefused::Stale => NotStarted::Stale,
                HoldRefused::KeyTaken(taken) => NotStarted::NotAdmitted(taken.into()),
                refused => {
                    let fits = |covers: &Covers<'_>| need::max_tokens_that_fit(call, input, covers);
                    unpaid(&gateway, refused, need, &fits).into()
                }
            });
        }
    };
    failpoint::reached("held");
    if let Err(error) = reservation.keep() {
        tracing::error!(%error, call = id.0, "writing a reservation to the journal failed; the call is refused with 503");
        reservation.cancel();
        hold.cancel();
        return Err(GatewayError::RateLimitUnavailable.into());
    }
    failpoint::reached("kept");
    Ok(Admitted {
        gateway,
        reservation,
        hold,
        prices: target.prices.clone(),
        provider_prices: None,
        input,
        reserved: need.tokens,
        counted: 0,
        vendor: None,
        spans: Spans::of(call),
    })
}

impl Admitted {
    pub(crate) fn id(&self) -> CallId {
        self.hold.id()
    }

    /// Ends the span of the admission.
    pub(crate) fn describe(&self, span: Admission) {
        span.placed(&self.hold, self.reserved);
    }

    /// Sets the response to store with the charge of a call with an idempotency key; `None` if it is too long.
    pub(crate) fn set_response(&mut self, body: Option<Arc<str>>) {
        self.hold.set_response(body);
    }

    /// When the credit that pays for the call expires.
    pub(crate) fn credits_expire_at(&self) -> Option<i64> {
        self.hold.expires_at
    }

    /// The tokens that the current step sends, as they were estimated.
    pub(crate) fn estimated_input(&self) -> u64 {
        self.input.estimate
    }

    /// Sets the deployment of the current attempt.
    pub(crate) fn set_deployment(&mut self, deployment: &Deployment) {
        self.hold.set_deployment(&deployment.name);
        self.provider_prices.clone_from(&deployment.cost);
        self.vendor = Some(deployment.vendor.clone());
    }

    /// Sets the model that answers, at whose prices the call is charged.
    pub(crate) fn set_route(&mut self, route: &Route) {
        self.prices = route.target.prices.clone();
        self.hold.set_route(&route.target, route.decision_json());
    }

    /// Admits the next step. `used` is the usage of all steps before it, `latest` that of the last one, which replaces the
    /// last reservation.
    ///
    /// If it is refused, the call is over and costs nothing, because it gets no response.
    pub(crate) async fn renew(
        &mut self,
        call: &ChatCall,
        used: Usage,
        latest: Usage,
    ) -> Result<(), GatewayError> {
        let (account_id, model) = (call.user.as_str(), call.route.requested.id.as_str());
        let gateway = &self.gateway;
        let ceilings = gateway.ledger.ceilings(account_id, model, gateway.ceilings);
        self.input = call.count();
        let need = Need::of(call, self.input);
        self.reservation
            .renew(latest.total(), need.tokens, ceilings)
            .await?;
        self.counted += latest.total();
        self.reserved = need.tokens;
        self.hold.set_reservations(self.reservation.reservations());
        let need = need.after(self.hold.price(used));
        self.hold
            .extend(need.tokens, need.amount, need.worst, gateway.max_overdraft)
            .await
            .map_err(|refused| match refused {
                HoldRefused::Unavailable | HoldRefused::Stale => GatewayError::AdmissionLost,
                // A smaller `max_tokens` would not help: the call would start again from its first step.
                refused => unpaid(gateway, refused, need, &|_| None),
            })?;
        if let Err(error) = self.reservation.keep() {
            tracing::error!(%error, call = self.hold.id().0, "writing a reservation to the journal failed; the call ends before its next step");
            return Err(GatewayError::AdmissionLost);
        }
        failpoint::reached("renewed");
        Ok(())
    }

    /// The usage that is billed for the current step, by the provider's report. What goes beyond the call's bounds is
    /// the operator's loss; it is logged, counted and alerted.
    pub(crate) fn billable(&mut self, call: &ChatCall, reported: Usage) -> Usage {
        if let Some(prices) = &self.provider_prices {
            self.hold
                .add_provider_cost(prices.exact(reported.billable()));
        }
        let billable = need::billable(call, self.input, reported);
        if billable != reported {
            let beyond = reported.cost(&self.prices).nanos() - billable.cost(&self.prices).nanos();
            // Negative where a price threshold makes larger prompts cheaper.
            let lost = beyond.max(0);
            let (upstream, lost) = (self.hold.upstream(), NanoUsd::new(lost));
            tracing::warn!(
                account.id = call.user,
                model = call.route.requested.id,
                upstream,
                tokens.r#in = reported.prompt,
                tokens.out = reported.completion,
                charged.r#in = billable.prompt,
                charged.out = billable.completion,
                %lost,
                "a provider reported more tokens than the request could use; what is beyond its bound is not charged",
            );
            self.gateway.metrics.reported_too_much(upstream);
            self.gateway.alerts.reported_too_much(upstream, lost);
        }
        billable
    }

    /// Adds what the provider charges for an answer that was discarded for a better one. The customer does not pay it.
    pub(crate) fn add_discarded(&mut self, deployment: &Deployment, used: Option<Usage>) {
        if let Some((prices, used)) = deployment.cost.as_ref().zip(used) {
            self.hold.add_provider_cost(prices.exact(used.billable()));
        }
    }

    /// The bill for this usage, at the call's prices.
    pub(crate) fn bill(&self, usage: Usage) -> Bill {
        let cost = self.hold.price(usage);
        Bill { usage, cost }
    }

    /// Adds a provider's step to the call's trace.
    pub(crate) fn add_provider_step(&mut self, answer: &Answer, begun_at: Option<Instant>) {
        let usage = answer.usage.unwrap_or_default();
        let finish = answer.choices.first().map(|choice| choice.finish);
        self.hold.step(Step::Provider {
            upstream: self.hold.upstream().to_owned(),
            finish_reason: finish.map(|finish| finish.as_str().to_owned()),
            prompt_tokens: usage.prompt,
            cached_tokens: usage.cached,
            cache_write_tokens: usage.cache_write,
            cache_write_1h_tokens: usage.cache_write_1h,
            completion_tokens: usage.completion,
            ms: begun_at.map_or(0, milliseconds),
        });
    }

    /// Adds a tool's step to the call's trace.
    pub(crate) fn add_step(&mut self, step: Step) {
        self.hold.step(step);
    }

    /// Adds a failed attempt to the call's trace.
    pub(crate) fn failed_attempt(&mut self, attempt: Attempt) {
        self.hold.failed_attempt(attempt);
    }

    /// What a log line says of the call.
    pub(crate) fn facts(&self, bill: Option<Bill>) -> Facts {
        Facts {
            upstream: self.hold.deployment().cloned(),
            cost: bill.map(|bill| bill.cost),
            first_byte_ms: self.hold.first_byte_after(),
        }
    }

    /// Records the time of the first part of the answer.
    pub(crate) fn first_byte(&mut self) {
        self.hold.first_byte();
    }

    /// Charges the usage and settles the reservation with it. When this returns, the charge is committed.
    ///
    /// A charge that cannot be written is retried until it can, or until `timeout` completes; after that it may be
    /// charged again.
    pub(crate) async fn charge(
        &mut self,
        usage: Usage,
        outcome: Outcome,
        timeout: impl Future<Output = ()>,
    ) -> Result<(), GatewayError> {
        tokio::pin!(timeout);
        let mut is_logged = false;
        let span = self.spans.charge();
        loop {
            match self.hold.charge(usage, outcome).await {
                Ok(call) => {
                    failpoint::reached("charged");
                    spans::charged(span, &call);
                    self.reservation
                        .settle(usage.total().saturating_sub(self.counted));
                    self.gateway.metrics.ended(&call, self.vendor.as_deref());
                    if let Some(charged) = call.charged {
                        self.gateway.traffic.charged(charged);
                        let left = charged.balance_after;
                        self.gateway.alerts.charged(&call.account_id, left);
                    }
                    return Ok(());
                }
                // The client sent its request again meanwhile, and has paid for that.
                Err(LedgerError::KeySpent) => {
                    if let Some(mut span) = span {
                        span.fail("idempotency_in_progress", "");
                    }
                    return Err(KeyTaken::InProgress.into());
                }
                Err(error) if !is_logged => {
                    tracing::error!(%error, call = self.hold.id().0, "writing a charge failed; retrying every 100 ms");
                    is_logged = true;
                }
                Err(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(CHARGE_INTERVAL) => {}
                () = &mut timeout => {
                    if let Some(mut span) = span {
                        span.fail("store_unavailable", "the charge could not be written in time");
                    }
                    return Err(GatewayError::CreditUnavailable);
                }
            }
        }
    }

    /// The page of the portal that shows the call.
    pub(crate) fn request_url(&self) -> Option<String> {
        let pages = &self.gateway.portal.request_pages;
        pages.url(self.hold.request_id())
    }

    /// Releases the hold: the call costs nothing and counts as a request without tokens.
    pub(crate) fn release(self, outcome: Outcome, failure: Option<String>) {
        self.end(0, outcome, failure);
    }

    /// Releases the hold of a failed call. Its reservation stays in the window if tokens were used but not reported.
    pub(crate) fn release_failed(self, failure: &Failure, outcome: Outcome) {
        let tokens = match failure {
            Failure::Uncounted => self.reserved,
            Failure::Upstream(_) | Failure::Refused(_) | Failure::Left(_) => 0,
        };
        self.end(tokens, outcome, Some(failure.cause()));
    }

    /// Ends a call that failed before its response started: charges the steps of an abandoned call, else releases the
    /// hold. Returns the error response, with what the log line says of the call.
    pub(crate) async fn end_without_response(self, failure: Failure) -> NotStarted {
        let facts = self.facts(None);
        if let Failure::Left(usage) = failure {
            Box::pin(self.charge_abandoned(usage)).await;
        } else {
            self.release_failed(&failure, failure.outcome());
        }
        NotStarted::Failed(failure.into_error(), Box::new(facts))
    }

    /// Releases the hold of a call that was delivered without a report of its usage. The response is free; the reservation
    /// stays in the window, because otherwise a provider that never reports usage would have no token limit.
    pub(crate) fn release_uncounted(self, call: &ChatCall) {
        tracing::warn!(
            account.id = call.user,
            model = call.route.requested.id,
            upstream = self.hold.upstream(),
            "the provider reported no usage; the response is free and its reservation stays in the window"
        );
        let reserved = self.reserved;
        self.end(reserved, Outcome::NoUsage, None);
    }

    fn end(mut self, tokens: u64, outcome: Outcome, failure: Option<String>) {
        self.spans.released(outcome, failure.as_deref());
        self.reservation.settle(tokens);
        self.hold.set_reservations(self.reservation.reservations());
        if let Some(call) = self.hold.release(outcome, failure) {
            self.gateway.metrics.ended(&call, self.vendor.as_deref());
        }
    }
}

impl From<KeyTaken> for GatewayError {
    fn from(taken: KeyTaken) -> Self {
        match taken {
            KeyTaken::InProgress => Self::IdempotencyInProgress,
            KeyTaken::OtherRequest => Self::IdempotencyKeyReused,
        }
    }
}

/// Whether there was credit, or room in budgets, for a need.
type Covers<'a> = dyn Fn(&Need) -> bool + 'a;

/// The error response for a refused hold. `fits` computes the `max_tokens` with which the request would have started.
pub(super) fn unpaid(
    gateway: &Gateway,
    refused: HoldRefused,
    need: Need,
    fits: &dyn Fn(&Covers<'_>) -> Option<u32>,
) -> GatewayError {
    let billing_url = gateway.links.billing.clone();
    match refused {
        HoldRefused::KeyInactive => GatewayError::InvalidKey,
        HoldRefused::KeyTaken(taken) => taken.into(),
        HoldRefused::Unavailable | HoldRefused::Stale => GatewayError::CreditUnavailable,
        HoldRefused::NoAccount { balance } => GatewayError::NoAccount {
            balance,
            billing_url,
        },
        HoldRefused::OverBudget(budgets) => over_budget(gateway, budgets, need, fits),
        HoldRefused::Short(shortage) => {
            let overdraft = gateway.max_overdraft;
            let unpaid = Box::new(Unpaid {
                balance: shortage.balance,
                available: shortage.available,
                held: shortage.held,
                needed: need.least_available(overdraft),
                max_tokens_that_fit: fits(&|need| {
                    shortage.covers(need.amount, need.worst, overdraft)
                }),
                is_temporary: shortage.covers_alone(need.amount, need.worst, overdraft),
                billing_url,
            });
            match shortage.expired_at {
                Some(at) => GatewayError::CreditsExpired {
                    unpaid,
                    expired_at: timestamp::shown(at),
                },
                None => GatewayError::InsufficientCredits(unpaid),
            }
        }
    }
}

/// The error response of a call for which budgets have no room. It names the narrowest of them.
fn over_budget(
    gateway: &Gateway,
    budgets: Vec<BudgetShortage>,
    need: Need,
    fits: &dyn Fn(&Covers<'_>) -> Option<u32>,
) -> GatewayError {
    let overdraft = gateway.max_overdraft;
    let max_tokens_that_fit = fits(&|need| {
        let mut budgets = budgets.iter();
        budgets.all(|budget| budget.covers(need.amount, need.worst, overdraft))
    });
    let is_temporary = budgets
        .iter()
        .all(|budget| budget.covers_alone(need.amount, need.worst, overdraft));
    let fits_from = fits_from(&budgets, need, overdraft).map(timestamp::shown);
    if !is_temporary {
        gateway
            .alerts
            .used_up(budgets.iter().map(|budget| budget.id.clone()));
    }
    let Some(budget) = budgets.into_iter().next() else {
        return GatewayError::CreditUnavailable;
    };
    gateway.metrics.over_budget(budget.scope.as_str());
    GatewayError::BudgetExceeded(Box::new(OverBudget {
        scope: budget.scope.as_str(),
        scope_id: budget.scope_id,
        id: budget.id,
        name: budget.name,
        amount: budget.amount,
        period: budget.period.as_str(),
        spent: budget.spent,
        held: budget.held,
        resets_at: budget.resets_at.map(timestamp::shown),
        fits_from,
        needed: need.least_available(overdraft),
        max_tokens_that_fit,
        is_temporary,
    }))
}

/// When all of these budgets have begun a period into which the call fits; `None` if one of them never will.
fn fits_from(budgets: &[BudgetShortage], need: Need, overdraft: NanoUsd) -> Option<i64> {
    let (amount, worst) = (need.amount, need.worst);
    let full = budgets
        .iter()
        .filter(|budget| !budget.covers_alone(amount, worst, overdraft));
    let resets = full.map(|budget| {
        let fits = budget.covers_anew(amount, worst, overdraft);
        budget.resets_at.filter(|_| fits)
    });
    resets.collect::<Option<Vec<_>>>()?.into_iter().max()
}
