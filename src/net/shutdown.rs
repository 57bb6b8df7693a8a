//! Shutdown in two stages: first no new work is accepted, then the grace period ends.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio_util::sync::CancellationToken;

use crate::net::lanes;

/// Handle to the state of the shutdown; clones share it.
#[derive(Clone, Default)]
pub struct Shutdown(Arc<Stages>);

#[derive(Default)]
struct Stages {
    requested: Stage,
    deadline: Stage,
}

/// A stage of the shutdown, with one token per thread: every request checks and awaits it, and threads that shared the
/// waiter list of one token would contend for its lock.
struct Stage {
    is_reached: AtomicBool,
    /// Indexed by lane number; 0 is for threads that serve no requests.
    tokens: Vec<CancellationToken>,
}

impl Shutdown {
    /// Starts the shutdown.
    pub(crate) fn request(&self) {
        self.0.requested.reach();
    }

    /// Ends the grace period: running calls are not awaited any longer.
    pub(crate) fn end_grace_period(&self) {
        self.0.deadline.reach();
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.0.requested.is_reached.load(Ordering::Acquire)
    }

    /// Returns when the shutdown has been requested.
    pub(crate) async fn requested(&self) {
        self.0.requested.reached().await;
    }

    /// Returns when the grace period has ended.
    pub(crate) async fn deadline(&self) {
        self.0.deadline.reached().await;
    }
}

impl Default for Stage {
    fn default() -> Self {
        let threads = lanes::lanes() + 1;
        Self {
            is_reached: AtomicBool::new(false),
            tokens: (0..threads).map(|_| CancellationToken::new()).collect(),
        }
    }
}

impl Stage {
    fn reach(&self) {
        self.is_reached.store(true, Ordering::Release);
        for token in &self.tokens {
            token.cancel();
        }
    }

    async fn reached(&self) {
        let lane = lanes::this_lane() % self.tokens.len();
        self.tokens[lane].cancelled().await;
    }
}
