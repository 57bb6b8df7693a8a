//! The office in a database that several gateways share.
//!
//! A transaction has a connection to itself; one that went wrong, or that nobody waits for any more,
//! is closed, and the server takes back what was not committed.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{sync::Semaphore, time::timeout};
use tokio_postgres::types::{ToSql, Type};

mod migrate;

use super::{
    BackofficeError,
    sql::{Row, Statement, Value},
};
use crate::db::postgres::{Address, Connected, Error};

/// Few: calls need the server's connections more.
const AT_ONCE: usize = 2;

/// A table is not there.
const UNDEFINED_TABLE: &str = "42P01";

pub struct InDatabase {
    address: Address,
    idle: Mutex<Vec<Connected>>,
    places: Semaphore,
    /// Less than anyone waits in all, so that they hear why.
    timeout: Duration,
    /// Begins a transaction in which the server waits no longer than anyone waits for it.
    begin: String,
    is_up_to_date: AtomicBool,
}

impl InDatabase {
    pub fn new(address: Address, deadline: Duration) -> Self {
        let timeout = deadline * 3 / 4;
        let milliseconds = timeout.as_millis();
        Self {
            address,
            idle: Mutex::default(),
            places: Semaphore::new(AT_ONCE),
            timeout,
            begin: format!("BEGIN; SET LOCAL statement_timeout = {milliseconds}"),
            is_up_to_date: AtomicBool::new(false),
        }
    }

    pub async fn run(&self, statements: &[Statement]) -> Result<Vec<Row>, Error> {
        let waiting = timeout(self.timeout, self.places.acquire()).await;
        let Ok(Ok(_place)) = waiting else {
            return Err(Error::Unexpected("too much is waiting for it".into()));
        };
        match self.run_once(statements).await {
            Err(error) if is_for_another_connection(&error) => {
                // What is wrong with this one may be wrong with the others.
                self.idle().clear();
                self.run_once(statements).await
            }
            run => run,
        }
    }

    async fn run_once(&self, statements: &[Statement]) -> Result<Vec<Row>, Error> {
        let connection = self.connection().await?;
        if !self.is_up_to_date.load(Relaxed) {
            migrate::bring_up_to_date(&connection, &self.begin).await?;
            self.is_up_to_date.store(true, Relaxed);
        }
        let run = self.in_one_transaction(&connection, statements).await;
        if let Err(error) = &run
            && error.code() == Some(UNDEFINED_TABLE)
        {
            // Another database has taken its place.
            self.is_up_to_date.store(false, Relaxed);
        }
        let rows = run?;
        self.idle().push(connection);
        Ok(rows)
    }

    async fn connection(&self) -> Result<Connected, Error> {
        loop {
            let idle = self.idle().pop();
            match idle {
                Some(idle) if idle.is_closed() => {}
                Some(idle) => return Ok(idle),
                None => return self.address.connect().await,
            }
        }
    }

    async fn in_one_transaction(
        &self,
        connection: &Connected,
        statements: &[Statement],
    ) -> Result<Vec<Row>, Error> {
        connection.batch_execute(&self.begin).await?;
        let mut answer = Vec::new();
        for Statement { sql, values } in statements {
            let values: Vec<_> = values.iter().map(typed).collect();
            answer = connection.query_typed(sql, &values).await?;
        }
        connection.batch_execute("COMMIT").await?;
        answer.iter().map(row).collect()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connected>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Error> for BackofficeError {
    fn from(error: Error) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// Whether the same may go well at once on another connection: every step can be done twice.
fn is_for_another_connection(error: &Error) -> bool {
    // The server is going down or has become another's copy; two were in each other's way; a table
    // is to be made.
    let codes = ["57P", "25006", "40", UNDEFINED_TABLE];
    match error {
        Error::Broken(_) => true,
        Error::Refused { code, .. } => codes.iter().any(|known| code.starts_with(known)),
        _ => false,
    }
}

fn typed(value: &Value) -> (&(dyn ToSql + Sync), Type) {
    static NULL: Option<&str> = None;
    match value {
        Value::Text(text) => (text, Type::TEXT),
        Value::Int(number) => (number, Type::INT8),
        Value::Null => (&NULL, Type::TEXT),
    }
}

fn row(row: &tokio_postgres::Row) -> Result<Row, Error> {
    let values = row.columns().iter().enumerate().map(|(at, column)| {
        let value = if *column.type_() == Type::INT8 {
            row.try_get::<_, Option<i64>>(at)?.map(Value::Int)
        } else {
            row.try_get::<_, Option<String>>(at)?.map(Value::Text)
        };
        Ok(value.unwrap_or(Value::Null))
    });
    Ok(Row::new(values.collect::<Result<_, Error>>()?))
}
