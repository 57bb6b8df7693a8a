//! Whether a call's client is still there.
//!
//! A call whose client has left is counted as abandoned (`gateway/abandoned.rs`) from that moment until it ends, however
//! it ends.

use std::{future::poll_fn, pin::Pin};

use tokio::sync::mpsc;

use super::{Begun, Frame};
use crate::gateway::{AbandonedCall, AbandonedCalls};

pub struct ClientWatch<'a> {
    calls: &'a AbandonedCalls,
    account_id: &'a str,
    /// Once the client has left.
    counted: Option<AbandonedCall<'a>>,
}

impl<'a> ClientWatch<'a> {
    pub fn new(calls: &'a AbandonedCalls, account_id: &'a str) -> Self {
        Self {
            calls,
            account_id,
            counted: None,
        }
    }

    /// Counts the call, once.
    pub fn client_left(&mut self) {
        let (calls, account_id) = (self.calls, self.account_id);
        self.counted.get_or_insert_with(|| calls.count(account_id));
    }

    pub fn has_left(&self) -> bool {
        self.counted.is_some()
    }

    /// Runs `work` for a client that waits for the beginning of its response. One that leaves moves the call to a task of
    /// its own (`running.rs`), where it is polled at once: to look before each poll is enough.
    pub async fn while_waiting<T>(
        &mut self,
        begun: &Begun,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        poll_fn(|context| {
            if begun.is_closed() {
                self.client_left();
            }
            work.as_mut().poll(context)
        })
        .await
    }

    /// Runs `work` for a client that receives frames. Its leaving is noticed though the provider sends nothing that could
    /// be handed on.
    pub async fn while_receiving<T>(
        &mut self,
        frames: &mpsc::Sender<Frame>,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        tokio::select! {
            biased;
            done = work.as_mut() => return done,
            () = frames.closed() => self.client_left(),
        }
        work.await
    }
}
