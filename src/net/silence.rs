//! A timer for streams on which nothing was sent for a while.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

/// Notices when a stream has been silent.
///
/// Resetting a timer for each frame would cost more than the frame, so it is reset only when it has fired. A silence is
/// therefore noticed after once to twice its length.
pub(crate) struct Silence {
    length: Duration,
    timer: Pin<Box<Sleep>>,
    /// Whether something was sent since the timer was set.
    is_active: bool,
}

impl Silence {
    pub(crate) fn new(length: Duration) -> Self {
        Self {
            length,
            timer: Box::pin(tokio::time::sleep(length)),
            is_active: false,
        }
    }

    /// Records that something was sent.
    pub(crate) fn broken(&mut self) {
        self.is_active = true;
    }

    /// Ready when nothing was sent for at least the length of a silence.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(context));
            self.timer.as_mut().reset(Instant::now() + self.length);
            if !std::mem::take(&mut self.is_active) {
                return Poll::Ready(());
            }
        }
    }
}
