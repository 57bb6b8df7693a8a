//! The windows in Redis or Valkey, shared by many gateways.
//!
//! Each operation is one run of one Lua script, by the server's own clock.
//!
//! On failure nothing is admitted: neither while the server does not reply within the timeout, nor while it may have
//! lost entries. After a restart, a failover, a flush or a jump of its clock the windows are first rebuilt from the
//! ledger.

use std::{pin::Pin, sync::Arc, time::Duration};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

mod address;
mod admission;
mod clocks;
mod keeper;
mod link;
mod operation;
mod rebuild;
mod script;
#[cfg(test)]
mod tests;
mod updates;

pub(crate) use address::Address;
pub(crate) use admission::Admission;

use self::{
    clocks::Clocks,
    link::Link,
    script::{Reply, Run, WindowKeys, entry},
    updates::Update,
};
use super::NotAdmitted;
use crate::base::rate::{Ceilings, Reservation, StoredReservation};

/// How many operations may wait for the server at once; further ones fail immediately.
const MAX_IN_FLIGHT: usize = 4_096;

/// Reads every reservation of the last 60 seconds from the ledger, or fails with a reason.
pub(crate) type Rebuild = Box<dyn Fn() -> Rebuilding + Send + Sync>;
pub(crate) type Rebuilding =
    Pin<Box<dyn Future<Output = Result<Vec<StoredReservation>, String>> + Send>>;

/// The limiter of a gateway that shares its windows. Dropping it ends its background tasks.
pub struct Shared {
    inner: Arc<Inner>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

/// State that the limiter shares with its background tasks.
struct Inner {
    address: Address,
    /// How long an operation waits for its reply. If the connection breaks, it is repeated once.
    deadline: Duration,
    /// An admitted request is in the ledger within this time, or does not go ahead. A rebuild waits this long before
    /// it reads the ledger, so that no reservation on its way there is missed.
    known_within: Duration,
    rebuild: Rebuild,
    clocks: Clocks,
    /// The connection, or why there is none that can be used.
    link: watch::Sender<Result<Link, String>>,
    /// Incremented to make the keeper check the connection.
    check_requests: watch::Sender<u64>,
    in_flight: Semaphore,
    updates: mpsc::UnboundedSender<Update>,
    /// How many updates are queued or being sent.
    pending_updates: watch::Sender<usize>,
}

impl Shared {
    /// Starts the background tasks and returns at once. The tasks connect, and reconnect after every failure.
    pub(crate) fn connect(
        address: &Address,
        deadline: Duration,
        known_within: Duration,
        rebuild: Rebuild,
    ) -> Arc<Self> {
        let (updates, queue) = mpsc::unbounded_channel();
        let inner = Arc::new(Inner {
            address: address.clone(),
            deadline,
            known_within,
            rebuild,
            clocks: Clocks::default(),
            link: watch::Sender::new(Err("not connected yet".to_owned())),
            check_requests: watch::Sender::new(0),
            in_flight: Semaphore::new(MAX_IN_FLIGHT),
            updates,
            pending_updates: watch::Sender::new(0),
        });
        let tasks = [
            tokio::spawn(keeper::keep(inner.clone())),
            tokio::spawn(updates::send_all(inner.clone(), queue)),
        ];
        Arc::new(Self {
            inner,
            _tasks: tasks.map(AbortOnDropHandle::new),
        })
    }

    /// Admits a request and reserves `need` tokens for it, or refuses it with the reason and the time to wait.
    ///
    /// Idempotent: admitting a `call` again returns its first reservation.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        call: u64,
        account: &str,
        model: &str,
        need: u64,
        ceilings: Ceilings,
    ) -> Result<Admission, NotAdmitted> {
        let window = Arc::new(WindowKeys::of(account, model));
        let name = entry(call, 0);
        let run = Run::admit(&window, &name, need, ceilings);
        let on_failure = Update::bury(&window, &name);
        match self.inner.execute(&run, on_failure).await {
            Ok((Reply::Admitted { at_ms }, attempts)) => {
                let reservation = Reservation {
                    at_ms,
                    tokens: need,
                    step: 0,
                };
                Ok(Admission::new(
                    self.clone(),
                    window,
                    call,
                    reservation,
                    attempts,
                ))
            }
            Ok((Reply::Refused(refusal), _)) => Err(NotAdmitted::Refused(refusal)),
            _ => Err(NotAdmitted::Unavailable),
        }
    }

    /// Whether there is a connection on which requests can be admitted.
    pub(crate) fn is_ready(&self) -> bool {
        self.inner.link.borrow().is_ok()
    }

    /// Counts how often the server's clock was found to have jumped.
    pub(crate) fn clock_jumps(&self) -> Counter {
        self.inner.clocks.jumps.clone()
    }

    /// Waits until requests can be admitted, at most for `timeout`.
    pub(crate) async fn until_ready(&self, timeout: Duration) {
        let mut link = self.inner.link.subscribe();
        let _ = tokio::time::timeout(timeout, link.wait_for(Result::is_ok)).await;
    }

    /// Why requests cannot be admitted at the moment, as a text for the operator.
    #[cfg(test)]
    pub(crate) fn why_not_ready(&self) -> Option<String> {
        self.inner.link.borrow().as_ref().err().cloned()
    }

    /// Waits until all updates have reached the server, at most for `timeout`.
    pub(crate) async fn drain(&self, timeout: Duration) {
        let mut pending = self.inner.pending_updates.subscribe();
        let drained = pending.wait_for(|count| *count == 0);
        if tokio::time::timeout(timeout, drained).await.is_err() {
            let count = *self.inner.pending_updates.borrow();
            tracing::warn!(
                count,
                "{count} updates of rate-limit reservations did not reach Redis; these requests count as reserved \
                until they leave the window, at most 60 s"
            );
        }
    }
}

impl Inner {
    /// Queues an update, to be sent in the background.
    fn enqueue(&self, update: Update) {
        self.pending_updates.send_modify(|count| *count += 1);
        if self.updates.send(update).is_err() {
            self.pending_updates.send_modify(|count| *count -= 1);
        }
    }
}
