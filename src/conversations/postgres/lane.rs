//! A connection that is opened when it is needed, and reopened after a failure.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tokio_postgres::Row;

use super::Values;
use crate::db::postgres::{Address, Connected, Error};

/// A connection that concurrent operations share.
pub(crate) struct Lane {
    address: Address,
    /// Timeout for opening a connection.
    timeout: Duration,
    /// Locked while a connection is opened.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<Arc<Open>>,
    /// Time and reason of the last failure to open a connection.
    failed: Option<(Instant, Error)>,
}

struct Open {
    connected: Connected,
    /// Whether an operation on it failed: running operations go on, and new ones open another connection.
    is_unusable: AtomicBool,
}

/// When a statement may be retried on another connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Always: executing it twice has the effect of once.
    Idempotent,
    /// Only if the server reported that it was not executed.
    IfNotExecuted,
}

impl Lane {
    pub(crate) fn new(address: Address, timeout: Duration) -> Self {
        Self {
            address,
            timeout,
            state: Mutex::default(),
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Executes a statement and returns its rows; retries it once on a new connection if the first one is broken.
    pub(crate) async fn query(
        &self,
        retry: Retry,
        statement: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, Error> {
        let first = self.query_once(statement, values).await;
        match first {
            Err(Error::Broken(_)) if retry == Retry::Idempotent => {}
            // The server shuts down or has become a read-only replica.
            Err(Error::Refused { .. }) if first.as_ref().is_err_and(Error::is_transient) => {}
            first => return first,
        }
        self.query_once(statement, values).await
    }

    async fn query_once(&self, statement: &str, values: Values<'_>) -> Result<Vec<Row>, Error> {
        let mut usage = UsageGuard {
            open: self.open().await?,
            succeeded: false,
        };
        let rows = usage.open.connected.query_typed(statement, values).await?;
        usage.succeeded = true;
        Ok(rows)
    }

    async fn open(&self) -> Result<Arc<Open>, Error> {
        let called_at = Instant::now();
        let mut state = self.state.lock().await;
        if let Some(open) = &state.open
            && !open.connected.is_closed()
            && !open.is_unusable.load(Relaxed)
        {
            return Ok(open.clone());
        }
        // Callers that waited for a failed attempt share its error instead of making attempts of their own.
        if let Some((at, error)) = &state.failed
            && called_at < *at
        {
            return Err(error.clone());
        }
        state.open = None;
        let connecting = timeout(self.timeout, self.address.connect()).await;
        match connecting.unwrap_or(Err(Error::TimedOut)) {
            Ok(connected) => {
                let open = Arc::new(Open {
                    connected,
                    is_unusable: AtomicBool::new(false),
                });
                state.open = Some(open.clone());
                Ok(open)
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

/// Marks the connection as unusable if the operation fails or its caller is dropped, so that statements do not pile up
/// on a server that hangs.
struct UsageGuard {
    open: Arc<Open>,
    succeeded: bool,
}

impl Drop for UsageGuard {
    fn drop(&mut self) {
        if !self.succeeded {
            self.open.is_unusable.store(true, Relaxed);
        }
    }
}
