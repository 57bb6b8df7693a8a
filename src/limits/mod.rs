//! Requests and tokens a minute, per account and requested model (SPEC §8.1, §8.2).
//!
//! Both ceilings are checked and taken in one step, so requests side by side cannot pass together
//! what only one of them may. A request that is admitted holds an [`Admission`]; what becomes of it
//! is said once: what it used, nothing, or that it never happened.

use std::{collections::HashMap, io, path::Path, sync::Arc, time::Duration};

use prometheus_client::metrics::counter::Counter;

mod memory;
mod redis;

pub use redis::{Address, Rebuild};

use self::memory::Memory;
use crate::base::rate::{Ceilings, Refusal, Reservation, StoredReservation};

/// Why a request may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    Refused(Refusal),
    /// Requests cannot be counted just now.
    Unavailable,
}

/// Why a request may not go on to its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRenewed {
    Refused(Refusal),
    /// Nobody can say what was admitted before.
    Lost,
}

/// How long a step with a server may take, unless it is said otherwise.
pub const DEADLINE: Duration = Duration::from_millis(50);
/// How long a start waits for a server.
const START_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a stop waits for what is still to be told.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Where the minute is kept.
pub enum Limiter {
    Memory(Arc<Memory>),
    Shared(Arc<redis::Shared>),
}

/// A request that was admitted, with its steps so far.
///
/// Dropped without a word, it keeps the request counted and gives the tokens of its latest step
/// back: what was never reported was never used.
pub enum Admission {
    Memory(memory::Admission),
    Shared(redis::Admission),
}

impl Default for Limiter {
    /// Of this process alone, and forgotten with it.
    fn default() -> Self {
        Self::Memory(Arc::default())
    }
}

impl Limiter {
    /// Goes on with the minute that an earlier process kept beside `database`. `used` has what a
    /// call used in the end, where that is known; what is not known counts as it was reserved.
    pub fn resume(database: &Path, used: &HashMap<u64, u64>) -> io::Result<Self> {
        let memory = Memory::resume(database, used)?;
        Ok(Self::Memory(Arc::new(memory)))
    }

    /// With a server that gateways share. Should it lose the window, `rebuild` reads it back from the ledger, which
    /// has every call that went ahead `known_within` this time of its admission.
    ///
    /// Waits for the server a moment, and starts without it where that takes too long.
    pub async fn share(
        address: &Address,
        deadline: Duration,
        known_within: Duration,
        rebuild: Rebuild,
    ) -> Self {
        let shared = redis::Shared::connect(address, deadline, known_within, rebuild);
        shared.until_ready(known_within + START_TIMEOUT).await;
        Self::Shared(shared)
    }

    /// Counts a request that may use `need` tokens, or says why and for how long not. `call` is its
    /// number in the ledger.
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

    /// Whether requests can be counted just now.
    pub fn is_ready(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Shared(shared) => shared.is_ready(),
        }
    }

    /// How often the clock of the server was found to have been set.
    pub fn clock_jumps(&self) -> Counter {
        match self {
            Self::Memory(_) => Counter::default(),
            Self::Shared(shared) => shared.clock_jumps(),
        }
    }

    /// Returns once everything that was said of admissions is where the minute is kept, or it has
    /// taken too long.
    pub async fn drain(&self) {
        match self {
            Self::Memory(_) => {}
            Self::Shared(shared) => shared.drain(DRAIN_TIMEOUT).await,
        }
    }
}

impl Admission {
    /// Keeps the latest step beyond the end of this process. What cannot be kept must not be acted
    /// on.
    pub fn keep(&self) -> io::Result<()> {
        match self {
            Self::Memory(place) => place.keep(),
            // The hold has its place with it.
            Self::Shared(_) => Ok(()),
        }
    }

    /// The step that is over used this many tokens, and the next one may use `need`: admits it, or
    /// says why and for how long not. The request is not counted again.
    pub async fn renew(
        &mut self,
        used: u64,
        need: u64,
        ceilings: Ceilings,
    ) -> Result<(), NotRenewed> {
        match self {
            Self::Memory(place) => place
                .renew(used, need, ceilings)
                .map_err(NotRenewed::Refused),
            Self::Shared(place) => place.renew(used, need, ceilings).await,
        }
    }

    /// The request, or its latest step, used this many tokens, whatever it had reserved.
    pub fn settle(&mut self, tokens: u64) {
        match self {
            Self::Memory(place) => place.settle(tokens),
            Self::Shared(place) => place.settle(tokens),
        }
    }

    /// The request was refused after all, before anyone was asked: it does not count.
    pub fn cancel(self) {
        match self {
            Self::Memory(place) => place.cancel(),
            Self::Shared(place) => place.cancel(),
        }
    }

    /// Every step so far, for the ledger to keep. Memory has a journal of its own.
    pub fn places(&self) -> &[Reservation] {
        match self {
            Self::Memory(_) => &[],
            Self::Shared(place) => place.places(),
        }
    }
}
