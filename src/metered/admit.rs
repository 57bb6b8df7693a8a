//! Whether a call may start, and what it comes to: SPEC §8.1, §8.2, §8.6.

mod owed;

pub use owed::Settled;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    NotStarted,
    failure::Failure,
    need::{self, Need},
    tool_loop::milliseconds,
};
use crate::{
    base::{failpoint, money::NanoUsd, timestamp, tokens::TokenCount},
    catalog::Prices,
    gateway::Gateway,
    ledger::{Attempt, Caller, Held, HoldRefused, HoldRequest, Outcome, Shortage, Step},
    limits::{Admission, NotAdmitted, NotRenewed},
    prompt::{ChatCall, Route},
    upstream::deployments::Deployment,
    wire::{
        chat::{Answer, Bill, Usage},
        error::{GatewayError, Unpaid},
    },
};

/// How soon a charge that could not be written is tried again.
const CHARGE_INTERVAL: Duration = Duration::from_millis(100);

/// A call that may start: its place in the minute, and the credit set aside for it.
///
/// Dropped without a word, the credit is given back and the place counts as a request that used
/// nothing.
pub struct Admitted<'a> {
    gateway: &'a Gateway,
    place: Admission,
    credit: Held,
    prices: Arc<Prices>,
    /// The operator's own prices with the provider that is asked, if known.
    provider_prices: Option<Arc<Prices>>,
    /// What the present question sends.
    input: TokenCount,
    /// The tokens that the present question has reserved in the window.
    reserved: u64,
    /// What steps before the present one used, which has been counted.
    counted: u64,
}

/// Limits first, credit second: both or neither.
pub async fn admit<'a>(
    gateway: &'a Gateway,
    caller: &Caller,
    request_id: &str,
    call: &ChatCall,
) -> Result<Admitted<'a>, NotStarted> {
    let Route {
        requested, target, ..
    } = &call.route;
    let (account_id, model) = (caller.account_id.as_str(), requested.id.as_str());
    // Before anything is reserved: such a refusal counts nowhere.
    if gateway.abandoned.is_at_limit(account_id) {
        let limit = gateway.abandoned.limit();
        return Err(GatewayError::TooManyAbandoned { limit }.into());
    }
    let ceilings = gateway.ledger.ceilings(account_id, model, gateway.ceilings);
    let input = call.count();
    let need = Need::of(call, input);
    let id = gateway.ledger.next_call();
    let place = gateway
        .limiter
        .admit(id.0, account_id, model, need.tokens, ceilings)
        .await
        .map_err(|refused| match refused {
            NotAdmitted::Refused(refusal) => GatewayError::RateLimited(refusal),
            NotAdmitted::Unavailable => GatewayError::RateLimitUnavailable,
        })?;
    failpoint::reached("counted");
    let held = gateway.ledger.hold(HoldRequest {
        id,
        seen: caller.seen,
        places: place.places(),
        request_id,
        account_id,
        key_id: &caller.key_id,
        model,
        routed_model: &target.id,
        prices: target.prices.clone(),
        stream: call.stream,
        reserved_tokens: need.tokens,
        amount: need.amount,
        worst: need.worst,
        decision: call.route.decision_json(),
        overdraft: gateway.max_overdraft,
    });
    let credit = match held.await {
        Ok(credit) => credit,
        Err(refused) => {
            place.cancel();
            return Err(match refused {
                HoldRefused::Stale => NotStarted::Stale,
                refused => {
                    let fits = |shortage: &_| {
                        need::max_tokens_that_fit(call, input, shortage, gateway.max_overdraft)
                    };
                    unpaid(gateway, refused, need, fits).into()
                }
            });
        }
    };
    failpoint::reached("held");
    if let Err(error) = place.keep() {
        tracing::error!(%error, "an admission could not be kept: nothing is begun");
        place.cancel();
        credit.cancel();
        return Err(GatewayError::RateLimitUnavailable.into());
    }
    failpoint::reached("kept");
    Ok(Admitted {
        gateway,
        place,
        credit,
        prices: target.prices.clone(),
        provider_prices: None,
        input,
        reserved: need.tokens,
        counted: 0,
    })
}

impl Admitted<'_> {
    /// When the credit the call is paid from expires.
    pub fn credits_expire_at(&self) -> Option<i64> {
        self.credit.expires_at
    }

    /// Which provider is asked.
    pub fn asks(&mut self, deployment: &Deployment) {
        self.credit.asks(&deployment.name);
        self.provider_prices.clone_from(&deployment.cost);
    }

    /// Another model answers than was thought: what it says is charged at its price.
    pub fn goes_to(&mut self, route: &Route) {
        self.prices = route.target.prices.clone();
        self.credit.goes_to(&route.target, route.decision_json());
    }

    /// Admits another question for the same request: `used` by all before it, `latest` by the last
    /// one, which takes the place of what was reserved for that.
    ///
    /// Refused, the request is over; what it used is not charged, because it gets no answer.
    pub async fn renew(
        &mut self,
        call: &ChatCall,
        used: Usage,
        latest: Usage,
    ) -> Result<(), GatewayError> {
        let (account_id, model) = (call.user.as_str(), call.route.requested.id.as_str());
        let gateway = self.gateway;
        let ceilings = gateway.ledger.ceilings(account_id, model, gateway.ceilings);
        self.input = call.count();
        let need = Need::of(call, self.input);
        self.place
            .renew(latest.total(), need.tokens, ceilings)
            .await
            .map_err(|refused| match refused {
                NotRenewed::Refused(refusal) => GatewayError::RateLimited(refusal),
                NotRenewed::Lost => GatewayError::AdmissionLost,
            })?;
        self.counted += latest.total();
        self.reserved = need.tokens;
        self.credit.is_placed(self.place.places());
        let need = need.after(self.credit.price(used));
        self.credit
            .extend(need.tokens, need.amount, need.worst, gateway.max_overdraft)
            .await
            .map_err(|refused| match refused {
                HoldRefused::Unavailable | HoldRefused::Stale => GatewayError::AdmissionLost,
                // It would have to be asked anew, from its first step.
                refused => unpaid(gateway, refused, need, |_| None),
            })?;
        if let Err(error) = self.place.keep() {
            tracing::error!(%error, "a further step could not be kept: it is not taken");
            return Err(GatewayError::AdmissionLost);
        }
        failpoint::reached("renewed");
        Ok(())
    }

    /// What is charged of a provider's count for the present question. What it reports beyond the bounds is the
    /// operator's loss, who is told of it.
    pub fn charged(&mut self, call: &ChatCall, reported: Usage) -> Usage {
        if let Some(prices) = &self.provider_prices {
            self.credit
                .adds_provider_cost(prices.exact(reported.billable()));
        }
        let charged = need::charged(call, self.input, reported);
        if charged != reported {
            let beyond = reported.cost(&self.prices).nanos() - charged.cost(&self.prices).nanos();
            // Where larger prompts are cheaper, the bound may be the dearer one.
            let lost = beyond.max(0);
            let (upstream, lost) = (self.credit.upstream(), NanoUsd::new(lost));
            tracing::warn!(
                account.id = call.user,
                model = call.route.requested.id,
                upstream,
                tokens.r#in = reported.prompt,
                tokens.out = reported.completion,
                charged.r#in = charged.prompt,
                charged.out = charged.completion,
                %lost,
                "a provider reported more tokens than the request could use; what is beyond its bound is not charged",
            );
            self.gateway.metrics.reported_too_much(upstream);
            self.gateway.alerts.reported_too_much(upstream, lost);
        }
        charged
    }

    /// An answer of this provider was not good enough. The operator pays for it, nobody else does.
    pub fn discards(&mut self, deployment: &Deployment, used: Option<Usage>) {
        if let Some((prices, used)) = deployment.cost.as_ref().zip(used) {
            self.credit
                .adds_provider_cost(prices.exact(used.billable()));
        }
    }

    /// What is charged for so many tokens of this call.
    pub fn bill(&self, usage: Usage) -> Bill {
        let cost = self.credit.price(usage);
        Bill { usage, cost }
    }

    /// A provider has answered, and that was not all.
    pub fn answered_step(&mut self, answer: &Answer, asked_at: Option<Instant>) {
        let usage = answer.usage.unwrap_or_default();
        let finish = answer.choices.first().map(|choice| choice.finish);
        self.credit.step(Step::Provider {
            upstream: self.credit.upstream().to_owned(),
            finish_reason: finish.map(|finish| finish.as_str().to_owned()),
            prompt_tokens: usage.prompt,
            cached_tokens: usage.cached,
            cache_write_tokens: usage.cache_write,
            cache_write_1h_tokens: usage.cache_write_1h,
            completion_tokens: usage.completion,
            ms: asked_at.map_or(0, milliseconds),
        });
    }

    /// A tool was run.
    pub fn step(&mut self, step: Step) {
        self.credit.step(step);
    }

    /// It failed, and another may be asked.
    pub fn failed_attempt(&mut self, attempt: Attempt) {
        self.credit.failed_attempt(attempt);
    }

    /// The provider has begun to answer.
    pub fn answers(&mut self) {
        self.credit.answers();
    }

    /// Charges what was used and puts it in the place of what was reserved. When this returns, the
    /// charge is committed.
    ///
    /// A charge that cannot be written is tried again until it can, or until `enough`; it can be
    /// taken up again after that.
    pub async fn charge(
        &mut self,
        usage: Usage,
        outcome: Outcome,
        enough: impl Future<Output = ()>,
    ) -> Result<(), GatewayError> {
        tokio::pin!(enough);
        let mut told = false;
        loop {
            match self.credit.charge(usage, outcome).await {
                Ok(call) => {
                    failpoint::reached("charged");
                    self.place
                        .settle(usage.total().saturating_sub(self.counted));
                    self.gateway.metrics.ended(&call);
                    if let Some(charged) = call.charged {
                        self.gateway.traffic.charged(charged);
                        let left = charged.balance_after;
                        self.gateway.alerts.charged(&call.account_id, left);
                    }
                    return Ok(());
                }
                Err(error) if !told => {
                    tracing::error!(%error, "a charge could not be written; it is tried again");
                    told = true;
                }
                Err(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(CHARGE_INTERVAL) => {}
                () = &mut enough => return Err(GatewayError::CreditUnavailable),
            }
        }
    }

    /// The call came to nothing: it counts as a request, and costs nothing.
    pub fn free(self, outcome: Outcome, failure: Option<String>) {
        self.end(0, outcome, failure);
    }

    /// It failed: it costs nothing. Where tokens were used and not counted, what was reserved stays in the window.
    pub fn fail(self, failure: &Failure, outcome: Outcome) {
        let tokens = match failure {
            Failure::Uncounted => self.reserved,
            Failure::Upstream(_) | Failure::Refused(_) | Failure::Left(_) => 0,
        };
        self.end(tokens, outcome, Some(failure.cause()));
    }

    /// An answer was delivered whose tokens nobody has counted. It is free, the operator is told, and what it reserved
    /// stays in the window: else a provider that never counts would have no token limit.
    pub fn free_uncounted(self, call: &ChatCall) {
        tracing::warn!(
            account.id = call.user,
            model = call.route.requested.id,
            upstream = self.credit.upstream(),
            "a provider reported no usage to bill by: the answer was free"
        );
        let reserved = self.reserved;
        self.end(reserved, Outcome::NoUsage, None);
    }

    fn end(mut self, tokens: u64, outcome: Outcome, failure: Option<String>) {
        self.place.settle(tokens);
        self.credit.is_placed(self.place.places());
        if let Some(call) = self.credit.free(outcome, failure) {
            self.gateway.metrics.ended(&call);
        }
    }
}

/// The refusal that a caller reads. `fits` says with which `max_tokens` the request would have started.
fn unpaid(
    gateway: &Gateway,
    refused: HoldRefused,
    need: Need,
    fits: impl FnOnce(&Shortage) -> Option<u32>,
) -> GatewayError {
    let billing_url = gateway.links.billing.clone();
    match refused {
        HoldRefused::KeyInactive => GatewayError::InvalidKey,
        HoldRefused::Unavailable | HoldRefused::Stale => GatewayError::CreditUnavailable,
        HoldRefused::NoAccount { balance } => GatewayError::NoAccount {
            balance,
            billing_url,
        },
        HoldRefused::Short(shortage) => {
            let overdraft = gateway.max_overdraft;
            let unpaid = Box::new(Unpaid {
                balance: shortage.balance,
                available: shortage.available,
                held: shortage.held,
                needed: need.least_available(overdraft),
                max_tokens_that_fit: fits(&shortage),
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
