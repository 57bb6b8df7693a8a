//! Pool of idle connections to one provider, with a list for each lane.
//!
//! A connection stays with the thread that opened it. Connections that cannot be reused are dropped; a new one that
//! cannot be opened is an [`UpstreamError`].
//!
//! Bytes that a provider sends after a response would be taken for the next one. Three measures prevent it:
//!
//! - A connection rests for [`REST`] after a response, so that bytes sent together with the response, or right after it,
//!   have arrived before the connection is used again.
//! - When it is used again, the kernel is asked whether anything has arrived. If so, the connection is closed.
//! - After surplus bytes, no connection of the provider is reused for a while (`distrust.rs`).
//!
//! Bytes that arrive after this check, when the request was sent, cannot be distinguished from its response by any client
//! of HTTP/1. The last measure limits how often a provider has that chance. Where it must have none, each connection is
//! used for one request ([`Reuse::Never`]).

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use axum::http::Uri;
use tokio::runtime::Handle;

use super::{
    Connection,
    distrust::{DISTRUST, Distrust},
};
use crate::{
    net::{
        connect::{self, Connector},
        lanes,
        unread::Unread,
    },
    wire::error::UpstreamError,
};

/// How long an idle connection is kept. Less than the minute after which many servers close them: a request that is
/// sent at that moment is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);
/// How long a connection is not used again after a response.
pub(super) const REST: Duration = Duration::from_micros(250);
/// Most idle connections of a lane.
const MAX_IDLE: usize = 256;
/// How long the end of a body is awaited when its data has been read.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// First bytes of a response that some servers send before they close an idle connection. It belongs to no request by
/// intention, so it shows no confusion.
const TIMEOUT_NOTICES: [&[u8]; 2] = [b"HTTP/1.1 408", b"HTTP/1.0 408"];

/// Idle connections to one address.
pub(crate) struct Pool {
    connector: Connector,
    address: Uri,
    lanes: Vec<Mutex<Lane>>,
    /// See [`REST`].
    pub(super) rest: Duration,
    reuse: Reuse,
    pub(super) distrust: Distrust,
}

/// Whether connections are used for more than one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    Pooled,
    Never,
}

#[derive(Default)]
struct Lane {
    /// Ordered by last use; the most recently used is at the back and is taken first.
    idle: VecDeque<(Box<Connection>, Instant)>,
    /// Whether a task that closes old connections is running.
    is_swept: bool,
}

impl Pool {
    /// `address` has the scheme, the host and the port.
    pub(crate) fn new(
        address: Uri,
        connect_timeout: Duration,
        reuse: Reuse,
    ) -> Result<Self, String> {
        Ok(Self {
            connector: connect::connector(connect_timeout)?,
            address,
            lanes: (0..=lanes::lanes()).map(|_| Mutex::default()).collect(),
            rest: REST,
            reuse,
            distrust: Distrust::default(),
        })
    }

    /// An idle connection of this lane, or a new one. It must be used at once.
    ///
    /// Boxed, because it is moved more often than it is created.
    pub(crate) async fn take(self: &Arc<Self>) -> Result<Box<Connection>, UpstreamError> {
        let number = lanes::this_lane();
        while let Some(mut idle) = self.pop_rested(number) {
            match idle.unread() {
                Unread::Nothing => return Ok(idle),
                Unread::Bytes(bytes) => self.on_unsolicited(&bytes),
                Unread::Encrypted => self.inspect(idle),
                Unread::End => {}
            }
        }
        let connected = Box::pin(self.connector.connect(self.address.clone())).await;
        let stream = connected.map_err(UpstreamError::Connect)?;
        Ok(Box::new(Connection::new(stream, number)))
    }

    /// Reads what has arrived on an idle connection with TLS, which may be a session ticket or surplus bytes.
    fn inspect(self: &Arc<Self>, mut idle: Box<Connection>) {
        let pool = self.clone();
        tokio::spawn(async move {
            let read = tokio::time::timeout(END_TIMEOUT, idle.first_bytes()).await;
            if let Ok(Ok(bytes)) = read
                && !bytes.is_empty()
            {
                pool.on_unsolicited(&bytes);
            }
        });
    }

    /// Puts a connection into the pool after the end of its body has arrived; drops it if that takes too long.
    pub(crate) fn put_after_end(self: &Arc<Self>, mut connection: Box<Connection>) {
        let runtime = Handle::try_current();
        let (true, Ok(runtime)) = (connection.may_become_reusable(), runtime) else {
            return;
        };
        let pool = self.clone();
        runtime.spawn(async move {
            let end = tokio::time::timeout(END_TIMEOUT, connection.next()).await;
            if let Ok(Ok(None)) = end {
                pool.put(connection);
            }
        });
    }

    /// Puts a connection into the pool; drops it if it cannot be reused.
    pub(crate) fn put(self: &Arc<Self>, mut connection: Box<Connection>) {
        if connection.has_surplus() {
            return self.on_surplus();
        }
        let runtime = Handle::try_current();
        let may_reuse = self.reuse == Reuse::Pooled && connection.is_reusable();
        let (true, Ok(runtime)) = (may_reuse, runtime) else {
            return;
        };
        connection.free_buffer();
        let number = connection.lane;
        let mut lane = self.lane(number);
        // Checked with the lane locked: `on_surplus` empties it after distrust has begun.
        if self.distrust.is_on(Instant::now) {
            return;
        }
        if lane.idle.len() >= MAX_IDLE {
            lane.idle.pop_front();
        }
        lane.idle.push_back((connection, Instant::now()));
        if !lane.is_swept {
            lane.is_swept = true;
            drop(lane);
            runtime.spawn(sweep(Arc::downgrade(self), number));
        }
    }

    /// Removes the connection of a lane that was used last, of those that have rested.
    fn pop_rested(&self, number: usize) -> Option<Box<Connection>> {
        let now = Instant::now();
        let mut lane = self.lane(number);
        let rested = lane
            .idle
            .partition_point(|(_, since)| now.duration_since(*since) >= self.rest);
        let (connection, since) = lane.idle.remove(rested.checked_sub(1)?)?;
        // Those before it are older still.
        (now.duration_since(since) < IDLE_TIMEOUT).then_some(connection)
    }

    /// Handles bytes that arrived on an idle connection.
    fn on_unsolicited(&self, bytes: &[u8]) {
        let is_notice = TIMEOUT_NOTICES
            .iter()
            .any(|notice| bytes.starts_with(notice));
        if !is_notice {
            self.on_surplus();
        }
    }

    /// Stops the reuse of all connections for a while.
    fn on_surplus(&self) {
        if !self.distrust.begin(Instant::now()) {
            return; // no connection was put into the pool since
        }
        tracing::warn!(
            upstream = %self.address,
            minutes = DISTRUST.as_secs() / 60,
            "a provider sent bytes that belong to no request; its connections are not reused for a while"
        );
        for lane in &self.lanes {
            let mut lane = lane.lock().unwrap_or_else(PoisonError::into_inner);
            lane.idle.clear();
        }
    }

    fn lane(&self, number: usize) -> MutexGuard<'_, Lane> {
        let lane = &self.lanes[number % self.lanes.len()];
        lane.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes idle connections of a lane when they reach the idle timeout; ends when none is left.
async fn sweep(pool: Weak<Pool>, number: usize) {
    loop {
        tokio::time::sleep(IDLE_TIMEOUT / 2).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut lane = pool.lane(number);
        while lane
            .idle
            .front()
            .is_some_and(|(_, since)| since.elapsed() >= IDLE_TIMEOUT)
        {
            lane.idle.pop_front();
        }
        if lane.idle.is_empty() {
            lane.is_swept = false;
            return;
        }
    }
}
