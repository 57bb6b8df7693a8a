//! Connections for occasional queries: of operators, pages, leases and audits.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::timeout;
use tokio_postgres::{
    Row,
    types::{FromSqlOwned, ToSql, Type},
};

use crate::db::postgres::{Address, Connected, Error};

/// Timeout of every query.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most idle connections that are kept: as many as the busiest page uses at once, because opening one takes longer
/// than the page.
const MAX_IDLE: usize = 8;

pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

pub(crate) struct Pool {
    address: Address,
    idle: Mutex<Vec<Connected>>,
}

impl Pool {
    pub(crate) fn new(address: Address) -> Self {
        Self {
            address,
            idle: Mutex::default(),
        }
    }

    /// Takes a connection for one use. After an error it is dropped, not put back.
    pub(crate) async fn take(&self) -> Result<Connected, Error> {
        loop {
            let idle = self.idle().pop();
            match idle {
                Some(idle) if idle.is_closed() => {}
                Some(idle) => return Ok(idle),
                None => return self.address.connect().await,
            }
        }
    }

    pub(crate) fn put_back(&self, connection: Connected) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE && !connection.is_closed() {
            idle.push(connection);
        }
    }

    pub(crate) async fn query(
        &self,
        query: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        let connection = self.take().await?;
        let running = connection.query_typed(query, parameters);
        let rows = timeout(TIMEOUT, running)
            .await
            .map_err(|_| timed_out(query))?;
        let rows = rows?;
        self.put_back(connection);
        Ok(rows)
    }

    /// The only value of the only row.
    pub(crate) async fn query_one<T: FromSqlOwned>(
        &self,
        query: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<T, Error> {
        let rows = self.query(query, parameters).await?;
        let row = rows
            .first()
            .ok_or_else(|| Error::Unexpected("the query returned no row".into()))?;
        Ok(row.try_get(0)?)
    }

    pub(crate) async fn execute(
        &self,
        query: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<u64, Error> {
        let connection = self.take().await?;
        let running = connection.execute_typed(query, parameters);
        let rows = timeout(TIMEOUT, running)
            .await
            .map_err(|_| timed_out(query))?;
        let rows = rows?;
        self.put_back(connection);
        Ok(rows)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connected>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Logs the query, whose values are parameters: the server may be there, and the query be too slow for it.
fn timed_out(query: &str) -> Error {
    tracing::warn!(
        query,
        "a query of the ledger had no response within {} s",
        TIMEOUT.as_secs()
    );
    Error::TimedOut
}
