//! Rate limits: requests and tokens per 60-second window, for each account and requested model (§8.1, §8.2).
//!
//! Both ceilings are checked and reserved in one atomic step, so concurrent requests cannot exceed a ceiling together.
//! An admitted request holds an [`Admission`], which is settled, cancelled or dropped exactly once. When the limiter's
//! server is unreachable or may have lost entries, no request is admitted; requests that run already finish.
//!
//! May use `conversations`, `db`, `net`, `wire`, `routing`, `catalog` and `base`; it needs only `base`.

use std::{collections::HashMap, io, path::Path, sync::Arc, time::Duration};

use prometheus_client::metrics::counter::Counter;

mod memory;
mod redis;

pub(crate) use redis::{Address, Rebuild};

use self::memory::Memory;
use crate::base::rate::{Ceilings, Refusal, Reservation, StoredReservation};

/// Why a request was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// A ceiling is reached.
    Refused(Refusal),
    /// The limiter's server cannot be used at the moment.
    Unavailable,
}

/// Why the next step of an admitted request was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRenewed {
    /// A ceiling is reached.
    Refused(Refusal),
    /// The limiter's server cannot be used, or no longer has the request's earlier reservation.
    Lost,
}

/// Default of how long an operation waits for the limiter's server to reply: many times as long as that takes, because
/// on a busy machine each of the two processes may have to wait for the CPU.
pub(crate) const DEADLINE: Duration = Duration::from_millis(200);
/// How long the gateway's start waits for the limiter's server before it goes on without it.
const START_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the gateway's stop waits until pending updates have reached the limiter's server.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Keeps the windows: in memory with a journal, or in Redis.
pub enum Limiter {
    Memory(Arc<Memory>),
    Shared(Arc<redis::Shared>),
}

/// The reservations of an admitted request: one for the request and one for each further step.
///
/// If it is dropped without [`Self::settle`] or [`Self::cancel`], the request stays counted and the tokens of its
/// latest step are released, because usage that was never reported is taken as zero.
pub enum Admission {
    Memory(memory::Admission),
    Shared(redis::Admission),
}

impl Default for Limiter {
    /// In memory only, without a journal.
    fn default() -> Self {
        Self::Memory(Arc::default())
    }
}

impl Limiter {
    /// Restores the windows from the journal that an earlier process left next to `database`.
    ///
    /// `used` maps a call to the tokens that the ledger has for it; calls that are missing there count with the tokens
    /// they reserved.
    pub fn resume(database: &Path, used: &HashMap<u64, u64>) -> io::Result<Self> {
        let memory = Memory::resume(database, used)?;
        Ok(Self::Memory(Arc::new(memory)))
    }

    /// Keeps the windows in a server that several gateways share.
    ///
    /// If the server loses entries, `rebuild` reads them back from the ledger. A call is in the ledger `known_within`
    /// this time after its admission, or does not go ahead.
    ///
    /// Waits up to a few seconds for the server, and then returns without it; the limiter becomes ready later.
    pub(crate) async fn share(
        address: &Address,
        deadline: Duration,
        known_within: Duration,
        rebuild: Rebuild,
    ) -> Self {
        let shared = redis::Shared::connect(address, deadline, known_within, rebuild);
        shared.until_ready(known_within + START_TIMEOUT).await;
        Self::Shared(shared)
    }

    /// Admits a request and reserves `need` tokens for it, or refuses it with the reason and the time to wait.
    ///
    /// `call` is the call's number in the ledger.
    pub async fn admit(
        &self,
        call: u64,
        account: &str,
        model: &str,
        need: u64,
        ceilings: Ceilings,
    ) -> Result<Admission, NotAdmitted> {
        match self {
            Self::Memory(memory) => memory
                .admit(call, account, model, need, ceilings)
                .map(Admission::Memory)
                .map_err(NotAdmitted::Refused),
            Self::Shared(shared) => Box::pin(shared.admit(call, account, model, need, ceilings))
                .await
                .map(Admission::Shared),
        }
    }

    /// Whether the windows are on a server, so that admissions wait for its replies.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Whether requests can be admitted at the moment; always true in memory.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Shared(shared) => shared.is_ready(),
        }
    }

    /// Counts how often the server's clock was found to have jumped.
    pub(crate) fn clock_jumps(&self) -> Counter {
        match self {
            Self::Memory(_) => Counter::default(),
            Self::Shared(shared) => shared.clock_jumps(),
        }
    }

    /// Waits until every update of an admission has reached the server, at most two seconds.
    pub async fn drain(&self) {
        match self {
            Self::Memory(_) => {}
            Self::Shared(shared) => shared.drain(DRAIN_TIMEOUT).await,
        }
    }
}

impl Admission {
    /// Writes the latest reservation to the journal, so that it survives this process.
    ///
    /// If this fails, the call must not go ahead.
    pub fn keep(&self) -> io::Result<()> {
        match self {
            Self::Memory(admission) => admission.keep(),
            // The hold stores the reservations in the shared ledger.
            Self::Shared(_) => Ok(()),
        }
    }

    /// Settles the finished step with `used` tokens and reserves `need` tokens for the next one, or refuses that.
    ///
    /// The request itself is not counted again.
    pub(crate) async fn renew(
        &mut self,
        used: u64,
        need: u64,
        ceilings: Ceilings,
    ) -> Result<(), NotRenewed> {
        match self {
            Self::Memory(admission) => admission
                .renew(used, need, ceilings)
                .map_err(NotRenewed::Refused),
            Self::Shared(admission) => admission.renew(used, need, ceilings).await,
        }
    }

    /// Replaces the latest reservation by the tokens that the request, or its latest step, used.
    pub fn settle(&mut self, tokens: u64) {
        match self {
            Self::Memory(admission) => admission.settle(tokens),
            Self::Shared(admission) => admission.settle(tokens),
        }
    }

    /// Removes the request from the window. For a request that was refused later on, before any provider was called.
    pub(crate) fn cancel(self) {
        match self {
            Self::Memory(admission) => admission.cancel(),
            Self::Shared(admission) => admission.cancel(),
        }
    }

    /// The reservations of all steps so far, for the ledger to store. Empty in memory, which has its own journal.
    pub fn reservations(&self) -> &[Reservation] {
        match self {
            Self::Memory(_) => &[],
            Self::Shared(admission) => admission.reservations(),
        }
    }
}
