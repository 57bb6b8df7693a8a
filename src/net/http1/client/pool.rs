//! Pool of idle connections to one provider, with a list for each lane.
//!
//! A connection stays with the thread that opened it. Connections that cannot be reused are dropped; a new one that
//! cannot be opened is an [`UpstreamError`].

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use axum::http::Uri;
use tokio::runtime::Handle;

use super::Connection;
use crate::{
    net::{
        connect::{self, Connector},
        lanes,
    },
    wire::error::UpstreamError,
};

/// How long an idle connection is kept. Less than the minute after which many servers close them: a request that is
/// sent at that moment is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);
/// Most idle connections of a lane.
const MAX_IDLE: usize = 256;
/// How long the end of a body is awaited when its data has been read.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Idle connections to one address.
pub(crate) struct Pool {
    connector: Connector,
    address: Uri,
    lanes: Vec<Mutex<Lane>>,
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
    pub(crate) fn new(address: Uri, connect_timeout: Duration) -> Result<Self, String> {
        Ok(Self {
            connector: connect::connector(connect_timeout)?,
            address,
            lanes: (0..=lanes::lanes()).map(|_| Mutex::default()).collect(),
        })
    }

    /// An idle connection of this lane, or a new one.
    ///
    /// Boxed, because it is moved more often than it is created.
    pub(crate) async fn take(&self) -> Result<Box<Connection>, UpstreamError> {
        let number = lanes::this_lane();
        while let Some((mut idle, since)) = self.pop_latest(number) {
            if since.elapsed() < IDLE_TIMEOUT && idle.is_alive() {
                return Ok(idle);
            }
        }
        let connected = Box::pin(self.connector.connect(self.address.clone())).await;
        let stream = connected.map_err(UpstreamError::Connect)?;
        Ok(Box::new(Connection::new(stream, number)))
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
        let runtime = Handle::try_current();
        let (true, Ok(runtime)) = (connection.is_reusable(), runtime) else {
            return;
        };
        connection.free_buffer();
        let number = connection.lane;
        let mut lane = self.lane(number);
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

    /// Removes the most recently used idle connection of a lane.
    fn pop_latest(&self, number: usize) -> Option<(Box<Connection>, Instant)> {
        self.lane(number).idle.pop_back()
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
