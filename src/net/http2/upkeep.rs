//! Closes connections that are idle or whose client has vanished.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use h2::{Ping, PingPong};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::state::ConnectionState;

/// Periods after which an idle connection, or one from which nothing arrives, is closed.
const PERIODS: u32 = 3;

/// How a connection is to be closed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Close {
    /// Requests that are on their way still get responses.
    Gracefully,
    Now,
}

/// Looks at a connection once per period, which takes less than a timer that is reset by every request.
pub(super) struct Upkeep {
    pings: Option<PingPong>,
    is_pinging: bool,
    period: Interval,
    /// Consecutive periods without a stream.
    idle: u32,
    /// Consecutive periods in which nothing arrived.
    silent: u32,
}

impl Upkeep {
    pub(super) fn new(pings: Option<PingPong>, idle_timeout: Duration) -> Self {
        let length = idle_timeout / PERIODS;
        let mut period = interval_at(Instant::now() + length, length);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            pings,
            is_pinging: false,
            period,
            idle: 0,
            silent: 0,
        }
    }

    /// Ready when the connection is to be closed.
    pub(super) fn poll(
        &mut self,
        state: &ConnectionState,
        context: &mut Context<'_>,
    ) -> Poll<Close> {
        loop {
            ready!(self.period.poll_tick(context));
            self.ping(context);
            let was_active = state.had_streams();
            self.idle = if was_active { 0 } else { self.idle + 1 };
            // What a slow reader has not read yet delays its response to a PING.
            let heard = state.next_period() || state.is_write_blocked();
            self.silent = if heard { 0 } else { self.silent + 1 };
            if self.silent >= PERIODS || self.idle > PERIODS {
                return Poll::Ready(Close::Now);
            }
            if self.idle == PERIODS {
                return Poll::Ready(Close::Gracefully);
            }
        }
    }

    /// Sends a PING, so that the client sends something. One that it has not responded to yet is not repeated.
    fn ping(&mut self, context: &mut Context<'_>) {
        let Some(pings) = &mut self.pings else { return };
        if self.is_pinging && pings.poll_pong(context).is_pending() {
            return;
        }
        self.is_pinging = pings.send_ping(Ping::opaque()).is_ok();
    }
}
