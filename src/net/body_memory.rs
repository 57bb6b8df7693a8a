//! The memory that request bodies may take, over all connections and for each account.
//!
//! A body reserves memory in steps while it is received, before the bytes of the step are stored, and keeps what it
//! reserved for as long as the call that was made of it. So the reservations never exceed the limit, whatever clients
//! announce or hold back.
//!
//! Half-received bodies could take all of the memory and wait for more of it for ever. Therefore a body that needs
//! memory when there is none either takes it from an account that has more, whose newest unfinished body is cancelled,
//! or is refused. It waits only for memory that a cancelled body is about to release, so it never waits for a client.
//! The account that has the most is the first to be refused, and an account's share bounds what it can have at all.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::base::fast_map::FastMap;

/// What a byte of a body counts: it is in memory as it was received, as it was parsed, and as it is forwarded.
pub(crate) const COPIES: usize = 3;

/// The memory of all bodies.
pub struct BodyMemory {
    /// Most bytes that all bodies may reserve.
    limit: usize,
    /// Most bytes that the bodies of one account may reserve.
    share: usize,
    state: Mutex<State>,
    /// Notified whenever memory is released.
    released: Notify,
}

#[derive(Default)]
struct State {
    /// The sum of all reservations.
    reserved: usize,
    /// The part of it whose bodies were cancelled: it is released as soon as their tasks run.
    cancelled: usize,
    /// Accounts with reservations.
    accounts: FastMap<Box<str>, Account>,
    /// Number of the newest body.
    newest: u64,
}

#[derive(Default)]
struct Account {
    reserved: usize,
    /// Bodies that are still received and have reserved something, by their number.
    unfinished: BTreeMap<u64, Unfinished>,
}

struct Unfinished {
    reserved: usize,
    cancel: CancellationToken,
}

/// There is no memory for the body: it is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

/// The reservation of one body; released when it is dropped.
pub(crate) struct BodyReservation {
    memory: Arc<BodyMemory>,
    account_id: Box<str>,
    number: u64,
    reserved: usize,
    /// Cancelled if another account needs the memory of this body before it is complete.
    cancel: CancellationToken,
}

enum Attempt {
    Granted,
    /// A cancelled body is about to release enough.
    Wait,
}

impl BodyMemory {
    /// `share` is the most that one account may reserve.
    pub(crate) fn new(limit: usize, share: usize) -> Self {
        Self {
            limit,
            share: share.min(limit),
            state: Mutex::default(),
            released: Notify::new(),
        }
    }

    /// Most bytes that can be reserved.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that are reserved now.
    pub fn reserved(&self) -> usize {
        self.lock().reserved
    }

    /// An empty reservation for a body of this account.
    pub(crate) fn begin(self: &Arc<Self>, account_id: &str) -> BodyReservation {
        let mut state = self.lock();
        state.newest += 1;
        BodyReservation {
            memory: self.clone(),
            account_id: account_id.into(),
            number: state.newest,
            reserved: 0,
            cancel: CancellationToken::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_grow(&self, body: &BodyReservation, bytes: usize) -> Result<Attempt, Exhausted> {
        let mut state = self.lock();
        if body.cancel.is_cancelled() {
            return Err(Exhausted);
        }
        let account = state.accounts.get(&body.account_id);
        let wanted = account.map_or(0, |account| account.reserved) + bytes;
        if wanted > self.share {
            return Err(Exhausted);
        }
        if state.reserved + bytes <= self.limit {
            state.grow(body, bytes);
            return Ok(Attempt::Granted);
        }
        // Several bodies may wait for what one has cancelled; those that find it taken cancel another one.
        while state.reserved - state.cancelled + bytes > self.limit {
            state.cancel_one(wanted).ok_or(Exhausted)?;
        }
        Ok(Attempt::Wait)
    }
}

impl State {
    fn grow(&mut self, body: &BodyReservation, bytes: usize) {
        self.reserved += bytes;
        let account = self.accounts.entry(body.account_id.clone()).or_default();
        account.reserved += bytes;
        let unfinished = account.unfinished.entry(body.number);
        let unfinished = unfinished.or_insert_with(|| Unfinished {
            reserved: 0,
            cancel: body.cancel.clone(),
        });
        unfinished.reserved += bytes;
    }

    /// Cancels the newest unfinished body of the account that has the most, if it has more than `wanted`.
    fn cancel_one(&mut self, wanted: usize) -> Option<()> {
        let with_unfinished = self.accounts.values_mut();
        let account = with_unfinished
            .filter(|account| account.reserved > wanted && !account.unfinished.is_empty())
            .max_by_key(|account| account.reserved)?;
        let (_, unfinished) = account.unfinished.pop_last()?;
        account.reserved -= unfinished.reserved;
        self.cancelled += unfinished.reserved;
        unfinished.cancel.cancel();
        Some(())
    }

    /// Releases `bytes` of a body; `is_over` if it is complete or dropped and cannot be cancelled any more.
    fn release(&mut self, body: &BodyReservation, bytes: usize, is_over: bool) {
        self.reserved -= bytes;
        let account = self.accounts.get_mut(&body.account_id);
        if body.cancel.is_cancelled() {
            self.cancelled -= bytes;
        } else if let Some(account) = account {
            account.reserved -= bytes;
            if is_over {
                account.unfinished.remove(&body.number);
            }
        }
        let account = self.accounts.get(&body.account_id);
        if account.is_some_and(|account| account.reserved == 0 && account.unfinished.is_empty()) {
            self.accounts.remove(&body.account_id);
        }
    }
}

impl BodyReservation {
    /// Reserves more for a body that is still received. Every step should have the same size: then the one body that is
    /// cancelled for it releases enough.
    pub(crate) async fn grow(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let memory = self.memory.clone();
        loop {
            // Registered before the attempt, so that no release between the two is missed.
            let mut released = pin!(memory.released.notified());
            released.as_mut().enable();
            match memory.try_grow(self, bytes)? {
                Attempt::Granted => {
                    self.reserved += bytes;
                    return Ok(());
                }
                Attempt::Wait => {}
            }
            tokio::select! {
                () = released => {}
                () = self.cancel.cancelled() => return Err(Exhausted),
            }
        }
    }

    /// Completes when the body was cancelled.
    pub(crate) async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Keeps `bytes` of what was reserved, for a body that is complete. From now on it is not cancelled.
    pub(crate) fn complete(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let surplus = self.reserved.saturating_sub(bytes);
        let mut state = self.memory.lock();
        if self.cancel.is_cancelled() {
            return Err(Exhausted);
        }
        state.release(self, surplus, true);
        drop(state);
        self.reserved -= surplus;
        self.memory.released.notify_waiters();
        Ok(())
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.memory.lock().release(self, self.reserved, true);
        self.memory.released.notify_waiters();
    }
}

impl std::fmt::Debug for BodyReservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BodyReservation({} bytes)", self.reserved)
    }
}

#[cfg(test)]
mod tests;
