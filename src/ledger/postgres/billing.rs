//! Holds and charges: the operations of a call, queued in its account's lane.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};

use super::{
    Shared,
    open_calls::OpenCalls,
    operations::{HoldTerms, Operation, OperationError, Reply},
    record::CallRecord,
};
use crate::{
    base::{keys::KeyDigest, money::NanoUsd},
    ledger::{Call, CallId, Charged, HoldRefused, LedgerError, Seen},
    wire::chat::Usage,
};

/// How long one attempt waits for a charge; callers may repeat it.
const CHARGE_TIMEOUT: Duration = Duration::from_millis(250);
/// How often to check for a new lease.
const LEASE_INTERVAL: Duration = Duration::from_millis(10);

type ReplyReceiver = oneshot::Receiver<Result<Reply, OperationError>>;

/// A charge without a reply yet.
pub(crate) struct Pending {
    receiver: ReplyReceiver,
    call: Box<Call>,
    charged: (Usage, NanoUsd),
}

impl Shared {
    /// Holds the call's amount, or refuses and changes nothing. Returns when the credit that pays for it expires.
    pub(crate) async fn hold(
        &self,
        call: &Call,
        secret: KeyDigest,
        seen: Seen,
        overdraft: NanoUsd,
    ) -> Result<Option<i64>, HoldRefused> {
        let terms = terms(call, secret, call.held, call.most, overdraft);
        let opening = OpeningCall::new(self, call);
        let waiting = self.submit_and_wait(&call.account_id, || Operation::hold(terms, seen));
        let (reply, text) = waiting.await?;
        opening.confirm(text);
        self.open_holds.fetch_add(1, Relaxed);
        self.open_amount.fetch_add(call.held.nanos(), Relaxed);
        Ok(reply.expires_at)
    }

    /// Raises the hold, or refuses and changes nothing.
    pub(crate) async fn extend(
        &self,
        call: &Call,
        secret: KeyDigest,
        amount: NanoUsd,
        worst: NanoUsd,
        overdraft: NanoUsd,
    ) -> Result<(), HoldRefused> {
        let terms = terms(call, secret, amount, worst, overdraft);
        let waiting = self.submit_and_wait(&call.account_id, || Operation::extend(terms));
        let (_, text) = waiting.await?;
        self.inner.open_calls.set_hold(call.id, text);
        let more = amount.max(call.held).nanos() - call.held.nanos();
        self.open_amount.fetch_add(more, Relaxed);
        Ok(())
    }

    /// Queues an operation and waits for its reply, up to the deadline. Returns the operation's JSON as well.
    async fn submit_and_wait(
        &self,
        account_id: &str,
        operation: impl Fn() -> Operation,
    ) -> Result<(Reply, Arc<str>), HoldRefused> {
        let waiting = async {
            loop {
                // A call that could not be charged is not started. Accounts of other lanes are not affected.
                if !self.lane(account_id).is_healthy() || !self.inner.health.has_room() {
                    return Err(HoldRefused::Unavailable);
                }
                let epoch = self.inner.lease.load().epoch;
                let mut operation = operation();
                let text = operation.text();
                let pending = PendingReply {
                    receiver: operation.expect_reply(),
                    hold: operation.hold_id(),
                    shared: self,
                    account_id,
                };
                self.submit(operation);
                let reply = pending.receive().await.ok_or(HoldRefused::Unavailable)?;
                if !reply.needs_lease() {
                    return Ok((reply, text));
                }
                // The gateway was paused for longer than its lease: it needs a new one first.
                self.inner.lease_needed.notify_one();
                while self.inner.lease.load().epoch == epoch {
                    tokio::time::sleep(LEASE_INTERVAL).await;
                }
            }
        };
        let reply = timeout(self.inner.deadline, waiting).await;
        let (mut reply, text) = reply.unwrap_or(Err(HoldRefused::Unavailable))?;
        reply.hold_refused().map_or(Ok((reply, text)), Err)
    }

    /// Charges the call. After a timeout the charge may still be committed: a repeated call waits for the same charge.
    pub(crate) async fn charge(
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
            let mut operation = Operation::charge(&record);
            let receiver = operation.expect_reply();
            self.submit(operation);
            Pending {
                receiver,
                call,
                charged: (usage, cost),
            }
        });
        let received = timeout(CHARGE_TIMEOUT, &mut waiting.receiver).await;
        let Ok(received) = received else {
            *pending = Some(waiting);
            return Err(LedgerError::Unavailable);
        };
        let reply = received.map_err(|_| LedgerError::Stopped)?;
        let reply = reply.map_err(|_| LedgerError::NotCommitted)?.charged()?;
        self.count_kept(&waiting.call);
        if reply.is_late {
            self.count_late_settlement(&waiting.call, waiting.charged.1);
        }
        let mut call = waiting.call;
        let (usage, cost) = waiting.charged;
        call.charged = Some(Charged {
            usage,
            cost,
            balance_before: NanoUsd::new(reply.balance_before_nano_usd),
            balance_after: NanoUsd::new(reply.balance_after_nano_usd),
        });
        self.close_call(&call);
        Ok(*call)
    }

    /// Releases the hold and stores the call's record. A charge that was committed although its caller got an error is
    /// taken back.
    pub(crate) fn release(&self, call: &Call) {
        self.close_call(call);
        self.submit(Operation::release(&CallRecord { call, usage: None }));
    }

    /// Releases the hold.
    pub(crate) fn cancel(&self, call: &Call) {
        self.close_call(call);
        self.submit(Operation::cancel(&call.account_id, call.id));
    }

    /// Counts and logs a call that was charged although its hold had been released. This is the only way in which an
    /// account can fall below its overdraft.
    pub(crate) fn count_late_settlement(&self, call: &Call, cost: NanoUsd) {
        self.inner.health.late_settlements.inc();
        tracing::warn!(
            call.id = %call.id,
            account.id = call.account_id,
            cost.nanos = cost.nanos(),
            "settled late: the call's hold was gone, because its gateway died or was paused for longer than its lease, \
            or because PostgreSQL lost it in a crash; the balance may be below its overdraft by up to this cost"
        );
    }

    fn close_call(&self, call: &Call) {
        self.inner.open_calls.remove(call.id);
        self.open_holds.fetch_sub(1, Relaxed);
        self.open_amount.fetch_sub(call.held.nanos(), Relaxed);
    }
}

fn terms(
    call: &Call,
    secret: KeyDigest,
    amount: NanoUsd,
    worst: NanoUsd,
    overdraft: NanoUsd,
) -> HoldTerms<'_> {
    HoldTerms {
        id: call.id,
        account_id: &call.account_id,
        payer: &call.payer,
        secret,
        amount,
        worst,
        overdraft,
        model: &call.model,
        reservations: &call.reservations,
        admitted_at: call.admitted_ms.div_euclid(1_000),
        idempotency: call.idempotency.as_deref(),
    }
}

/// Registers a call as open while its hold is being placed. Dropped before the hold is placed, it is unregistered.
struct OpeningCall<'a> {
    calls: &'a OpenCalls,
    id: CallId,
    is_held: bool,
}

impl<'a> OpeningCall<'a> {
    fn new(shared: &'a Shared, call: &Call) -> Self {
        let calls = &shared.inner.open_calls;
        calls.insert(call.id, &call.account_id);
        Self {
            calls,
            id: call.id,
            is_held: false,
        }
    }

    fn confirm(mut self, text: Arc<str>) {
        self.is_held = true;
        self.calls.set_hold(self.id, text);
    }
}

impl Drop for OpeningCall<'_> {
    fn drop(&mut self) {
        if !self.is_held {
            self.calls.remove(self.id);
        }
    }
}

/// Waits for a reply. If it is dropped, the lane cancels a hold by itself, unless the reply was sent just before: then
/// the hold is cancelled here.
struct PendingReply<'a> {
    receiver: ReplyReceiver,
    shared: &'a Shared,
    account_id: &'a str,
    hold: Option<CallId>,
}

impl PendingReply<'_> {
    async fn receive(mut self) -> Option<Reply> {
        let received = (&mut self.receiver).await.ok()?.ok();
        self.hold = None;
        received
    }
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        let replied = self.receiver.try_recv().is_ok_and(|reply| reply.is_ok());
        if let Some(id) = self.hold.filter(|_| replied) {
            self.shared.submit(Operation::cancel(self.account_id, id));
        }
    }
}
