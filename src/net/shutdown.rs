//! A request to stop, in two stages: no new work, then no more patience.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio_util::sync::CancellationToken;

use crate::net::lanes;

#[derive(Clone, Default)]
pub struct Shutdown(Arc<Stages>);

#[derive(Default)]
struct Stages {
    requested: Stage,
    deadline: Stage,
}

/// Every request asks whether it is reached and waits for it, on each thread in a list of its own: threads with one
/// list would wait for each other.
struct Stage {
    is_reached: AtomicBool,
    waiting: Vec<CancellationToken>,
}

impl Shutdown {
    pub fn request(&self) {
        self.0.requested.reach();
    }

    pub fn end_grace_period(&self) {
        self.0.deadline.reach();
    }

    pub fn is_requested(&self) -> bool {
        self.0.requested.is_reached.load(Ordering::Acquire)
    }

    pub async fn requested(&self) {
        self.0.requested.reached().await;
    }

    pub async fn deadline(&self) {
        self.0.deadline.reached().await;
    }
}

impl Default for Stage {
    fn default() -> Self {
        // One more for threads that serve no requests.
        let threads = lanes::lanes() + 1;
        Self {
            is_reached: AtomicBool::new(false),
            waiting: (0..threads).map(|_| CancellationToken::new()).collect(),
        }
    }
}

impl Stage {
    fn reach(&self) {
        self.is_reached.store(true, Ordering::Release);
        for waiting in &self.waiting {
            waiting.cancel();
        }
    }

    async fn reached(&self) {
        let here = lanes::this_lane() % self.waiting.len();
        self.waiting[here].cancelled().await;
    }
}
