//! Holds and charges: the steps between a call's admission and its bill, handed in to its account's lane.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};

use super::{
    Shared,
    open_calls::OpenCalls,
    record::{CallRecord, flat},
    steps::{Answer, Step, StepError, Wanted},
};
use crate::{
    base::money::NanoUsd,
    ledger::{Call, CallId, Charged, HoldRefused, LedgerError, Seen},
    wire::chat::Usage,
};

/// How long a charge is waited for at a time; whoever is more patient waits again.
const CHARGE_TIMEOUT: Duration = Duration::from_millis(250);
/// How often it is looked whether there is a new lease.
const LEASE_INTERVAL: Duration = Duration::from_millis(10);

type Heard = oneshot::Receiver<Result<Answer, StepError>>;

/// A charge that was handed in and not yet heard of.
pub struct Pending {
    heard: Heard,
    call: Box<Call>,
    charged: (Usage, NanoUsd),
}

impl Shared {
    /// Sets aside what the call is to hold, or refuses and changes nothing. Says when the credit it is
    /// paid from expires.
    pub async fn hold(
        &self,
        call: &Call,
        seen: Seen,
        overdraft: NanoUsd,
    ) -> Result<Option<i64>, HoldRefused> {
        let places = flat(&call.places);
        let wanted = Wanted {
            places: &places,
            ..wanted(call, call.held, call.most, overdraft)
        };
        let begun = Begun::new(self, call);
        let asked = self.ask(&call.account_id, || Step::hold(wanted, seen));
        let (answer, text) = asked.await?;
        begun.holds(text);
        self.open_holds.fetch_add(1, Relaxed);
        self.open_amount.fetch_add(call.held.nanos(), Relaxed);
        Ok(answer.expires)
    }

    /// Sets more aside, or refuses and keeps what there is.
    pub async fn extend(
        &self,
        call: &Call,
        amount: NanoUsd,
        worst: NanoUsd,
        overdraft: NanoUsd,
    ) -> Result<(), HoldRefused> {
        let places = flat(&call.places);
        let wanted = Wanted {
            places: &places,
            ..wanted(call, amount, worst, overdraft)
        };
        let asked = self.ask(&call.account_id, || Step::extend(wanted));
        let (_, text) = asked.await?;
        self.inner.open_calls.holds(call.id, text);
        let more = amount.max(call.held).nanos() - call.held.nanos();
        self.open_amount.fetch_add(more, Relaxed);
        Ok(())
    }

    /// Hands a step in and waits for its answer, for as long as a call waits. Returns the step as well, as the
    /// database reads it.
    async fn ask(
        &self,
        account_id: &str,
        step: impl Fn() -> Step,
    ) -> Result<(Answer, Arc<str>), HoldRefused> {
        let asked = async {
            loop {
                // What cannot be charged for is not begun; other lanes' accounts have their own.
                if !self.lane(account_id).is_well() || !self.inner.health.has_room() {
                    return Err(HoldRefused::Unavailable);
                }
                let epoch = self.inner.lease.load().epoch;
                let mut step = step();
                let text = step.text();
                let heard = Listening {
                    heard: step.listen(),
                    hold: step.held(),
                    shared: self,
                    account_id,
                };
                self.hand_in(step);
                let answer = heard.answer().await.ok_or(HoldRefused::Unavailable)?;
                if !answer.needs_lease() {
                    return Ok((answer, text));
                }
                // The gateway was asleep for longer than its lease: it takes a new one first.
                self.inner.lease_wanted.notify_one();
                while self.inner.lease.load().epoch == epoch {
                    tokio::time::sleep(LEASE_INTERVAL).await;
                }
            }
        };
        let answer = timeout(self.inner.deadline, asked).await;
        let (answer, text) = answer.unwrap_or(Err(HoldRefused::Unavailable))?;
        answer.refusal().map_or(Ok((answer, text)), Err)
    }

    /// Charges the call. Where it is not heard of in time it may still come about: whoever asks again
    /// goes on waiting for the same charge.
    pub async fn charge(
        &self,
        call: Box<Call>,
        usage: Usage,
        pending: &mut Option<Pending>,
    ) -> Result<Call, LedgerError> {
        let mut waiting = pending.take().unwrap_or_else(|| {
            let cost = call.price(usage);
            let record = CallRecord {
                call: &call,
                usage: Some((usage, cost)),
            };
            let mut step = Step::charge(&record, cost);
            let heard = step.listen();
            self.hand_in(step);
            Pending {
                heard,
                call,
                charged: (usage, cost),
            }
        });
        let heard = timeout(CHARGE_TIMEOUT, &mut waiting.heard).await;
        let Ok(heard) = heard else {
            *pending = Some(waiting);
            return Err(LedgerError::Unavailable);
        };
        let answer = heard.map_err(|_| LedgerError::Stopped)?;
        let answer = answer.map_err(|_| LedgerError::NotCommitted)?.charged()?;
        if answer.late {
            self.was_late(&waiting.call, waiting.charged.1);
        }
        let mut call = waiting.call;
        let (usage, cost) = waiting.charged;
        call.charged = Some(Charged {
            usage,
            cost,
            balance_before: NanoUsd::new(answer.before),
            balance_after: NanoUsd::new(answer.after),
        });
        self.is_over(&call);
        Ok(*call)
    }

    /// Gives back what the call held, and writes down how it ended. A charge that came about though
    /// its caller was told otherwise is taken back.
    pub fn free(&self, call: &Call) {
        self.is_over(call);
        self.hand_in(Step::free(&CallRecord { call, usage: None }));
    }

    /// Gives back what the call held.
    pub fn cancel(&self, call: &Call) {
        self.is_over(call);
        self.hand_in(Step::forget(&call.account_id, call.id));
    }

    /// The call was charged though its credit was free for others meanwhile: the way in which an account can end up
    /// below what its overdraft allows.
    pub fn was_late(&self, call: &Call, cost: NanoUsd) {
        self.inner.health.late_settlements.inc();
        tracing::warn!(
            call.id = %call.id,
            account.id = call.account_id,
            cost.nanos = cost.nanos(),
            "settled late: the hold of this call was gone, because its gateway died or was paused for longer than its \
            lease, or PostgreSQL lost it in a crash; the balance may be below its overdraft by up to this cost"
        );
    }

    fn is_over(&self, call: &Call) {
        self.inner.open_calls.ends(call.id);
        self.open_holds.fetch_sub(1, Relaxed);
        self.open_amount.fetch_sub(call.held.nanos(), Relaxed);
    }
}

fn wanted(call: &Call, amount: NanoUsd, worst: NanoUsd, overdraft: NanoUsd) -> Wanted<'_> {
    Wanted {
        id: call.id,
        account_id: &call.account_id,
        key_id: &call.key_id,
        amount,
        worst,
        overdraft,
        model: &call.model,
        places: &[],
        admitted_at: call.admitted_ms.div_euclid(1_000),
    }
}

/// A call that has asked for its hold. Dropped before the hold is there, it is not open.
struct Begun<'a> {
    calls: &'a OpenCalls,
    id: CallId,
    holds: bool,
}

impl<'a> Begun<'a> {
    fn new(shared: &'a Shared, call: &Call) -> Self {
        let calls = &shared.inner.open_calls;
        calls.begins(call.id, &call.account_id);
        Self {
            calls,
            id: call.id,
            holds: false,
        }
    }

    fn holds(mut self, text: Arc<str>) {
        self.holds = true;
        self.calls.holds(self.id, text);
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.holds {
            self.calls.ends(self.id);
        }
    }
}

/// Waits for an answer. Where nobody waits any more, the lane forgets a hold by itself, unless it had just
/// answered: then it is forgotten here.
struct Listening<'a> {
    heard: Heard,
    shared: &'a Shared,
    account_id: &'a str,
    hold: Option<CallId>,
}

impl Listening<'_> {
    async fn answer(mut self) -> Option<Answer> {
        let heard = (&mut self.heard).await.ok()?.ok();
        self.hold = None;
        heard
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.heard.close();
        let answered = self.heard.try_recv().is_ok_and(|answer| answer.is_ok());
        if let Some(id) = self.hold.filter(|_| answered) {
            self.shared.hand_in(Step::forget(self.account_id, id));
        }
    }
}
