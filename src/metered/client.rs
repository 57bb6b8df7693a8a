//! Whether the client of a call is still connected.
//!
//! A call whose client left counts as abandoned (`gateway/abandoned.rs`) from that moment until it ends.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use tokio::sync::mpsc;

use super::Frame;
use crate::gateway::{AbandonedCall, AbandonedCalls};

/// The client that waits for a response, as its call sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Client {
    left: Arc<AtomicBool>,
}

impl Client {
    /// Set when the handler that waits for the call is dropped.
    pub(crate) fn leave(&self) {
        self.left.store(true, Relaxed);
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Relaxed)
    }
}

/// Counts a call as abandoned once its client has left.
pub(crate) struct ClientWatch {
    pub client: Client,
    account_id: String,
    counted: Option<AbandonedCall>,
    /// Others get the response if the client leaves.
    has_key: bool,
}

impl ClientWatch {
    pub(crate) fn new(client: Client, account_id: String, has_key: bool) -> Self {
        Self {
            client,
            account_id,
            counted: None,
            has_key,
        }
    }

    /// The client by which a call decides whether to go on. A call with an idempotency key goes on: a retry gets its
    /// response, which is charged once.
    pub(crate) fn deciding(&self) -> Client {
        if self.has_key {
            Client::default()
        } else {
            self.client.clone()
        }
    }

    /// Counts the call as abandoned; repeating it changes nothing.
    pub(crate) fn count_abandoned(&mut self, calls: &Arc<AbandonedCalls>) {
        let account_id = &self.account_id;
        self.counted.get_or_insert_with(|| calls.count(account_id));
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.counted.is_some()
    }

    /// Runs `work` while the client waits for the start of its response.
    ///
    /// It is enough to check before each poll: when a client leaves, the call moves to a task of its own (`detach.rs`),
    /// which polls it at once.
    pub(crate) async fn while_waiting<T>(
        &mut self,
        calls: &Arc<AbandonedCalls>,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        poll_fn(|context| {
            if self.client.has_left() {
                self.count_abandoned(calls);
            }
            work.as_mut().poll(context)
        })
        .await
    }

    /// Runs `work` while the client receives frames. Notices that it left even if the provider sends nothing that could
    /// be relayed.
    pub(crate) async fn while_receiving<T>(
        &mut self,
        calls: &Arc<AbandonedCalls>,
        frames: &mpsc::Sender<Frame>,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        tokio::select! {
            biased;
            done = work.as_mut() => return done,
            () = frames.closed() => self.count_abandoned(calls),
        }
        work.await
    }
}
