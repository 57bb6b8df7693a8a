//! A connection that is opened when it is needed, and again after whatever went wrong with it.

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

pub struct Lane {
    address: Address,
    /// How long a connection may take to open.
    timeout: Duration,
    /// Held while one is opened.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<Arc<Open>>,
    /// Of the last attempt: when, and why.
    failed: Option<(Instant, Error)>,
}

struct Open {
    connected: Connected,
    /// Whoever has it still waits for an answer; nobody else begins with it.
    is_spoiled: AtomicBool,
}

/// When a statement may be said again, to another connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Done twice is as good as done once.
    Harmless,
    /// Only where the server said that it has not done it.
    IfNotDone,
}

impl Lane {
    pub fn new(address: Address, timeout: Duration) -> Self {
        Self {
            address,
            timeout,
            state: Mutex::default(),
        }
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What the server answers; where the connection turns out to be of no use, on the next one.
    pub async fn ask(
        &self,
        repeat: Repeat,
        statement: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, Error> {
        let first = self.ask_once(statement, values).await;
        match first {
            Err(Error::Broken(_)) if repeat == Repeat::Harmless => {}
            // It is going down, or has become another's copy.
            Err(Error::Refused { .. }) if first.as_ref().is_err_and(Error::is_transient) => {}
            first => return first,
        }
        self.ask_once(statement, values).await
    }

    async fn ask_once(&self, statement: &str, values: Values<'_>) -> Result<Vec<Row>, Error> {
        let mut using = Using {
            open: self.open().await?,
            went_well: false,
        };
        let rows = using.open.connected.query_typed(statement, values).await?;
        using.went_well = true;
        Ok(rows)
    }

    async fn open(&self) -> Result<Arc<Open>, Error> {
        let came = Instant::now();
        let mut state = self.state.lock().await;
        if let Some(open) = &state.open
            && !open.connected.is_closed()
            && !open.is_spoiled.load(Relaxed)
        {
            return Ok(open.clone());
        }
        // Whoever waited for an attempt shares its failure: a crowd is not a crowd of attempts.
        if let Some((at, error)) = &state.failed
            && came < *at
        {
            return Err(error.clone());
        }
        state.open = None;
        let connecting = timeout(self.timeout, self.address.connect()).await;
        match connecting.unwrap_or(Err(Error::TimedOut)) {
            Ok(connected) => {
                let open = Arc::new(Open {
                    connected,
                    is_spoiled: AtomicBool::new(false),
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

/// A failure, and as well nobody waiting for the answer any more, spoils the connection: what was
/// sent to a server that hangs must not pile up behind it.
struct Using {
    open: Arc<Open>,
    went_well: bool,
}

impl Drop for Using {
    fn drop(&mut self) {
        if !self.went_well {
            self.open.is_spoiled.store(true, Relaxed);
        }
    }
}
