//! An admitted request: its reservations, and their settlement or cancellation in the background.

use std::sync::Arc;

use super::{
    super::{Ceilings, NotRenewed, Reservation},
    Shared,
    operation::SendOnDrop,
    script::{Reply, Run, WindowKeys, entry},
    updates::Update,
};

/// The reservations of an admitted request, one for each step so far.
///
/// If it is dropped without being settled or cancelled, the request stays counted and the tokens of its latest step are
/// released, because usage that was never reported is taken as zero.
pub struct Admission {
    limiter: Arc<Shared>,
    window: Arc<WindowKeys>,
    call: u64,
    reservations: Vec<Reservation>,
    /// Whether the latest step is neither settled nor cancelled.
    is_open: bool,
    /// Whether an earlier attempt to admit the latest step timed out and may still arrive at the server.
    is_uncertain: bool,
}

impl Admission {
    pub(super) fn new(
        limiter: Arc<Shared>,
        window: Arc<WindowKeys>,
        call: u64,
        reservation: Reservation,
        attempts: u32,
    ) -> Self {
        Self {
            limiter,
            window,
            call,
            reservations: vec![reservation],
            is_open: true,
            is_uncertain: attempts > 1,
        }
    }

    /// Settles the finished step with `used` tokens and reserves `need` tokens for the next one, or refuses that.
    ///
    /// The request itself is not counted again. If the server does not reply, or the future is dropped, the finished
    /// step is settled in the background and the next step is buried.
    pub(crate) async fn renew(
        &mut self,
        used: u64,
        need: u64,
        ceilings: Ceilings,
    ) -> Result<(), NotRenewed> {
        if std::mem::take(&mut self.is_open) {
            self.latest().tokens = used;
        }
        let Reservation {
            at_ms,
            tokens,
            step,
        } = *self.latest();
        let (before, next) = (entry(self.call, step), entry(self.call, step + 1));
        let run = Run::renew(
            &self.window,
            (&before, at_ms, tokens),
            (&next, need),
            ceilings,
        );
        let inner = &self.limiter.inner;
        let settle_on_drop = SendOnDrop::new(inner, Update::settle(&self.window, &before, tokens));
        let reply = inner.execute(&run, Update::bury(&self.window, &next)).await;
        let (reply, attempts) = reply.map_err(|_| NotRenewed::Lost)?;
        settle_on_drop.disarm();
        match reply {
            Reply::Admitted { at_ms } => {
                self.reservations.push(Reservation {
                    at_ms,
                    tokens: need,
                    step: step + 1,
                });
                (self.is_open, self.is_uncertain) = (true, attempts > 1);
                Ok(())
            }
            Reply::Refused(refusal) => Err(NotRenewed::Refused(refusal)),
            _ => Err(NotRenewed::Lost),
        }
    }

    /// Replaces the latest reservation by the tokens that the request, or its latest step, used.
    ///
    /// Does nothing if the latest step is already settled.
    pub(crate) fn settle(&mut self, tokens: u64) {
        if std::mem::take(&mut self.is_open) {
            self.latest().tokens = tokens;
            let update = Update::settle(&self.window, &self.entry(), tokens);
            self.limiter.inner.enqueue(update);
        }
    }

    /// Removes the request from the window. For a request that was refused later on, before any provider was called.
    pub(crate) fn cancel(mut self) {
        if std::mem::take(&mut self.is_open) {
            let update = if self.is_uncertain {
                Update::bury(&self.window, &self.entry())
            } else {
                Update::cancel(&self.window, &self.entry())
            };
            self.limiter.inner.enqueue(update);
        }
    }

    /// The reservations of all steps so far, the request's own first.
    pub(crate) fn reservations(&self) -> &[Reservation] {
        &self.reservations
    }

    fn latest(&mut self) -> &mut Reservation {
        self.reservations
            .last_mut()
            .expect("an admission has at least one reservation")
    }

    /// The name of the latest step's entry in the window.
    fn entry(&self) -> String {
        let latest = self.reservations.last();
        entry(self.call, latest.map_or(0, |reservation| reservation.step))
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.settle(0);
    }
}
