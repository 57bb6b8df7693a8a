//! Holds and charges: the steps between a call's admission and its bill, handed in to its account's lane.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use tokio::{sync::oneshot, time::timeout};

use super::{
    Shared,
    record::{CallRecord, flat},
    steps::{Answer, Step, StepError, Wanted},
};
use crate::{
    ledger::{Call, CallId, Charged, HoldRefused, LedgerError, Seen},
    money::NanoUsd,
    wire::chat::Usage,
};

/// How long a charge is waited for at a time; whoever is more patient waits again.
const CHARGE_PATIENCE: Duration = Duration::from_millis(250);
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
        let asked = self.ask(&call.account_id, || Step::hold(wanted, seen));
        let answer = asked.await?;
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
        asked.await?;
        let more = amount.max(call.held).nanos() - call.held.nanos();
        self.open_amount.fetch_add(more, Relaxed);
        Ok(())
    }

    /// Hands a step in and waits for its answer, for as long as a call waits.
    async fn ask(&self, account_id: &str, step: impl Fn() -> Step) -> Result<Answer, HoldRefused> {
        let asked = async {
            loop {
                // What cannot be charged for is not begun; other lanes' accounts have their own.
                if !self.lane(account_id).is_well() || !self.inner.health.has_room() {
                    return Err(HoldRefused::Unavailable);
                }
                let epoch = self.inner.lease.load().epoch;
                let mut step = step();
                let heard = Listening {
                    heard: step.listen(),
                    hold: step.held(),
                    shared: self,
                    account_id,
                };
                self.hand_in(step);
                let answer = heard.answer().await.ok_or(HoldRefused::Unavailable)?;
                if !answer.needs_lease() {
                    return Ok(answer);
                }
                // The gateway was asleep for longer than its lease: it takes a new one first.
                self.inner.lease_wanted.notify_one();
                while self.inner.lease.load().epoch == epoch {
                    tokio::time::sleep(LEASE_INTERVAL).await;
                }
            }
        };
        let answer = timeout(self.inner.deadline, asked).await;
        let answer = answer.unwrap_or(Err(HoldRefused::Unavailable))?;
        answer.refusal().map_or(Ok(answer), Err)
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
        let heard = timeout(CHARGE_PATIENCE, &mut waiting.heard).await;
        let Ok(heard) = heard else {
            *pending = Some(waiting);
            return Err(LedgerError::Unavailable);
        };
        let answer = heard.map_err(|_| LedgerError::Stopped)?;
        let answer = answer.map_err(|_| LedgerError::NotCommitted)?.charged()?;
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

    fn is_over(&self, call: &Call) {
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
