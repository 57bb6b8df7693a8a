//! The connections to one provider that are free, each with the thread that it belongs to.

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

/// How long a free connection is kept, and how many of them a thread has.
///
/// Shorter than the minute after which many servers close them: a request that is sent just then is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);
const MAX_IDLE: usize = 256;
/// How long the end of a body may take that has nothing more to say.
const END_TIMEOUT: Duration = Duration::from_secs(1);

pub struct Pool {
    connector: Connector,
    address: Uri,
    lanes: Vec<Mutex<Lane>>,
}

#[derive(Default)]
struct Lane {
    /// The one that was used last is the last, and the next to be used.
    free: VecDeque<(Box<Connection>, Instant)>,
    /// Somebody looks after those that grow old.
    is_swept: bool,
}

impl Pool {
    /// `address` has the scheme, the host and the port.
    pub fn new(address: Uri, connect_timeout: Duration) -> Result<Self, String> {
        Ok(Self {
            connector: connect::connector(connect_timeout)?,
            address,
            lanes: (0..=lanes::lanes()).map(|_| Mutex::default()).collect(),
        })
    }

    /// A connection of this thread's, free or new.
    ///
    /// Boxed: it is handed about more often than it is made.
    pub async fn take(&self) -> Result<Box<Connection>, UpstreamError> {
        let number = lanes::this_lane();
        while let Some((mut free, since)) = self.latest(number) {
            if since.elapsed() < IDLE_TIMEOUT && free.is_alive() {
                return Ok(free);
            }
        }
        let connected = Box::pin(self.connector.connect(self.address.clone())).await;
        let stream = connected.map_err(UpstreamError::Connect)?;
        Ok(Box::new(Connection::new(stream, number)))
    }

    /// The same for one whose answer has said all that matters: its end may take a moment.
    pub fn give_back_soon(self: &Arc<Self>, mut connection: Box<Connection>) {
        let runtime = Handle::try_current();
        let (true, Ok(runtime)) = (connection.may_be_free(), runtime) else {
            return;
        };
        let pool = self.clone();
        runtime.spawn(async move {
            let end = tokio::time::timeout(END_TIMEOUT, connection.next()).await;
            if let Ok(Ok(None)) = end {
                pool.give_back(connection);
            }
        });
    }

    /// For the next request, if there can be one.
    pub fn give_back(self: &Arc<Self>, mut connection: Box<Connection>) {
        let runtime = Handle::try_current();
        let (true, Ok(runtime)) = (connection.is_free(), runtime) else {
            return;
        };
        connection.keeps_no_buffer();
        let number = connection.lane;
        let mut lane = self.lane(number);
        if lane.free.len() >= MAX_IDLE {
            lane.free.pop_front();
        }
        lane.free.push_back((connection, Instant::now()));
        if !lane.is_swept {
            lane.is_swept = true;
            drop(lane);
            runtime.spawn(sweep(Arc::downgrade(self), number));
        }
    }

    /// The free connection of a thread that was used last.
    fn latest(&self, number: usize) -> Option<(Box<Connection>, Instant)> {
        self.lane(number).free.pop_back()
    }

    fn lane(&self, number: usize) -> MutexGuard<'_, Lane> {
        let lane = &self.lanes[number % self.lanes.len()];
        lane.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes what nobody has used for long, until there is nothing left.
async fn sweep(pool: Weak<Pool>, number: usize) {
    loop {
        tokio::time::sleep(IDLE_TIMEOUT / 2).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut lane = pool.lane(number);
        while lane
            .free
            .front()
            .is_some_and(|(_, since)| since.elapsed() >= IDLE_TIMEOUT)
        {
            lane.free.pop_front();
        }
        if lane.free.is_empty() {
            lane.is_swept = false;
            return;
        }
    }
}
