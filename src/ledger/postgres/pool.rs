//! Connections for what is asked now and then: operators, leases, audits.

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

/// How long anything may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How many stay open when nobody needs them: as many as the page that asks most at once. Opening one takes
/// longer than the page.
const MAX_IDLE: usize = 8;

pub type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

pub struct Pool {
    address: Address,
    idle: Mutex<Vec<Connected>>,
}

impl Pool {
    pub fn new(address: Address) -> Self {
        Self {
            address,
            idle: Mutex::default(),
        }
    }

    /// A connection for one use; one that went wrong is not given back.
    pub async fn take(&self) -> Result<Connected, Error> {
        loop {
            let idle = self.idle().pop();
            match idle {
                Some(idle) if idle.is_closed() => {}
                Some(idle) => return Ok(idle),
                None => return self.address.connect().await,
            }
        }
    }

    pub fn give_back(&self, connection: Connected) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE && !connection.is_closed() {
            idle.push(connection);
        }
    }

    pub async fn ask(&self, query: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        let connection = self.take().await?;
        let asked = connection.query_typed(query, parameters);
        let rows = timeout(TIMEOUT, asked).await.map_err(|_| Error::TimedOut)?;
        let rows = rows?;
        self.give_back(connection);
        Ok(rows)
    }

    /// The one value of the one row that is answered.
    pub async fn ask_one<T: FromSqlOwned>(
        &self,
        query: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<T, Error> {
        let rows = self.ask(query, parameters).await?;
        let row = rows
            .first()
            .ok_or_else(|| Error::Unexpected("nothing was answered".into()))?;
        Ok(row.try_get(0)?)
    }

    pub async fn execute(&self, query: &str, parameters: &[Parameter<'_>]) -> Result<u64, Error> {
        let connection = self.take().await?;
        let asked = connection.execute_typed(query, parameters);
        let rows = timeout(TIMEOUT, asked).await.map_err(|_| Error::TimedOut)?;
        let rows = rows?;
        self.give_back(connection);
        Ok(rows)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connected>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
