//! The minute kept in Redis or Valkey, for many gateways at once.
//!
//! Each step is one run of one script by the server's own clock. A server that does not answer in
//! time admits nothing, and so does one that may have forgotten: after a restart, a failover or a
//! flush the last minute is put back from what the ledger knows before anything is admitted again.

use std::{pin::Pin, sync::Arc, time::Duration};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

mod address;
mod admission;
mod clocks;
mod keeper;
mod link;
mod rebuild;
mod script;
mod steps;
#[cfg(test)]
mod tests;
mod words;

pub use address::Address;
pub use admission::Admission;

use self::{
    clocks::Clocks,
    link::Link,
    script::{Answer, Minute, Run, entry},
    words::Word,
};
use super::NotAdmitted;
use crate::base::rate::{Ceilings, Reservation, StoredReservation};

/// So many steps may wait for the server at once; more are not even tried.
const STEPS_AT_ONCE: usize = 4_096;

/// Every place in the last minute that the ledger knows of, or why it cannot tell.
pub type Rebuild = Box<dyn Fn() -> Rebuilding + Send + Sync>;
pub type Rebuilding = Pin<Box<dyn Future<Output = Result<Vec<StoredReservation>, String>> + Send>>;

pub struct Shared {
    inner: Arc<Inner>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

/// What the tasks in the background have in common with the limiter.
struct Inner {
    address: Address,
    /// How long one try of a step may take.
    deadline: Duration,
    /// A request that was admitted is known to the ledger within this time, or does not go ahead: when the
    /// minute is put back, whatever is on its way to the ledger is waited for so long.
    known_within: Duration,
    rebuild: Rebuild,
    clocks: Clocks,
    /// The connection, or why there is none that could be used.
    link: watch::Sender<Result<Link, String>>,
    /// Counts up whenever the connection should be looked at.
    alarms: watch::Sender<u64>,
    room: Semaphore,
    words: mpsc::UnboundedSender<Word>,
    /// How many words have not been told yet.
    untold: watch::Sender<usize>,
}

impl Shared {
    /// Returns at once; the limiter becomes ready, and ready again, by itself.
    pub fn connect(
        address: &Address,
        deadline: Duration,
        known_within: Duration,
        rebuild: Rebuild,
    ) -> Arc<Self> {
        let (words, queue) = mpsc::unbounded_channel();
        let inner = Arc::new(Inner {
            address: address.clone(),
            deadline,
            known_within,
            rebuild,
            clocks: Clocks::default(),
            link: watch::Sender::new(Err("not connected yet".to_owned())),
            alarms: watch::Sender::new(0),
            room: Semaphore::new(STEPS_AT_ONCE),
            words,
            untold: watch::Sender::new(0),
        });
        let tasks = [
            tokio::spawn(keeper::keep(inner.clone())),
            tokio::spawn(words::tell(inner.clone(), queue)),
        ];
        Arc::new(Self {
            inner,
            _tasks: tasks.map(AbortOnDropHandle::new),
        })
    }

    /// Counts a request that may use `need` tokens, or says why and for how long not. The same
    /// `call` again is the same request.
    pub async fn admit(
        self: &Arc<Self>,
        call: u64,
        account: &str,
        model: &str,
        need: u64,
        ceilings: Ceilings,
    ) -> Result<Admission, NotAdmitted> {
        let minute = Arc::new(Minute::of(account, model));
        let name = entry(call, 0);
        let run = Run::admit(&minute, &name, need, ceilings);
        let unheard = Word::bury(&minute, &name);
        match self.inner.step(&run, unheard).await {
            Ok((Answer::Admitted { at_ms }, tries)) => {
                let place = Reservation {
                    at_ms,
                    tokens: need,
                    step: 0,
                };
                Ok(Admission::new(self.clone(), minute, call, place, tries))
            }
            Ok((Answer::Refused(refusal), _)) => Err(NotAdmitted::Refused(refusal)),
            _ => Err(NotAdmitted::Unavailable),
        }
    }

    pub fn is_ready(&self) -> bool {
        self.inner.link.borrow().is_ok()
    }

    /// How often the clock of the server was found to have been set.
    pub fn clock_jumps(&self) -> Counter {
        self.inner.clocks.jumps.clone()
    }

    /// Returns once limits can be checked, or after this time.
    pub async fn until_ready(&self, timeout: Duration) {
        let mut link = self.inner.link.subscribe();
        let _ = tokio::time::timeout(timeout, link.wait_for(Result::is_ok)).await;
    }

    /// Why limits cannot be checked just now, in words for whoever runs the gateway.
    pub fn why_not_ready(&self) -> Option<String> {
        self.inner.link.borrow().as_ref().err().cloned()
    }

    /// Returns once everything that was said of admissions has been told, or after this time.
    pub async fn drain(&self, timeout: Duration) {
        let mut untold = self.inner.untold.subscribe();
        let told = untold.wait_for(|count| *count == 0);
        if tokio::time::timeout(timeout, told).await.is_err() {
            let count = *self.inner.untold.borrow();
            tracing::warn!(
                count,
                "Redis was not told what became of requests; for a minute they count as reserved"
            );
        }
    }
}

impl Inner {
    fn say(&self, word: Word) {
        self.untold.send_modify(|count| *count += 1);
        if self.words.send(word).is_err() {
            self.untold.send_modify(|count| *count -= 1);
        }
    }
}
