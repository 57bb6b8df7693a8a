//! The backoffice store in a PostgreSQL database that several gateways share.
//!
//! Each transaction has a connection to itself. If it fails or its caller times out, the connection is closed and the
//! server rolls the transaction back.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join3;
use tokio::{sync::Semaphore, time::timeout};
use tokio_postgres::types::{ToSql, Type};

pub(super) mod tables;

use super::{
    BackofficeError,
    sql::{Row, Statement, Value},
};
use crate::db::postgres::{Address, Connected, Error};

/// Connections of this store. Few, because the ledger needs the server's connections more.
const MAX_CONNECTIONS: usize = 2;

/// `SQLSTATE` of a statement on a table that does not exist.
const UNDEFINED_TABLE: &str = "42P01";

/// `SQLSTATE` of a row that repeats what is unique.
const NOT_UNIQUE: &str = "23505";

/// The constraint that two people have different addresses, as the server's message names it.
const EMAIL_KEY: &str = "backoffice_people_email_key_key";

pub(crate) struct PostgresStore {
    address: Address,
    idle: Mutex<Vec<Connected>>,
    /// One permit per connection.
    permits: Semaphore,
    /// Timeout of waiting for a permit and of each statement. Shorter than the deadline of an operation, so that the
    /// caller gets the reason.
    timeout: Duration,
    /// Begins a transaction with `timeout` as the server's statement timeout.
    begin: String,
    /// Whether the tables were found or created.
    has_tables: AtomicBool,
}

impl PostgresStore {
    pub(crate) fn new(address: Address, deadline: Duration) -> Self {
        let timeout = deadline * 3 / 4;
        let milliseconds = timeout.as_millis();
        Self {
            address,
            idle: Mutex::default(),
            permits: Semaphore::new(MAX_CONNECTIONS),
            timeout,
            begin: format!("BEGIN; SET LOCAL statement_timeout = {milliseconds}"),
            has_tables: AtomicBool::new(false),
        }
    }

    pub(crate) async fn run(&self, statements: &[Statement]) -> Result<Vec<Row>, Error> {
        let waiting = timeout(self.timeout, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = waiting else {
            return Err(Error::Unexpected("all of its connections are busy".into()));
        };
        match self.run_once(statements).await {
            Err(error) if is_worth_another_connection(&error) => {
                // The idle connections may have the same fault, so the retry opens a new one.
                self.idle().clear();
                self.run_once(statements).await
            }
            run => run,
        }
    }

    async fn run_once(&self, statements: &[Statement]) -> Result<Vec<Row>, Error> {
        let connection = self.connection().await?;
        if !self.has_tables.load(Relaxed) {
            tables::create_if_missing(&connection, &self.begin).await?;
            self.has_tables.store(true, Relaxed);
        }
        let run = self.in_one_transaction(&connection, statements).await;
        if let Err(error) = &run
            && error.code() == Some(UNDEFINED_TABLE)
        {
            // The database was replaced or its tables dropped; the retry creates them.
            self.has_tables.store(false, Relaxed);
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
        if let [Statement { sql, values }] = statements
            && sql.starts_with("SELECT ")
        {
            // Sent at once, so that reading a session takes one round trip. Should the first fail, the statement is a
            // transaction of its own, so it must change nothing.
            let values: Vec<_> = values.iter().map(typed).collect();
            let begin = connection.batch_execute(&self.begin);
            let run = connection.query_typed(sql, &values);
            let commit = connection.batch_execute("COMMIT");
            let (opened, rows, committed) = join3(begin, run, commit).await;
            opened?;
            let rows = rows?;
            committed?;
            return rows.iter().map(row).collect();
        }
        connection.batch_execute(&self.begin).await?;
        let mut rows = Vec::new();
        for Statement { sql, values } in statements {
            let values: Vec<_> = values.iter().map(typed).collect();
            rows = connection.query_typed(sql, &values).await?;
        }
        connection.batch_execute("COMMIT").await?;
        rows.iter().map(row).collect()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connected>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Error> for BackofficeError {
    fn from(error: Error) -> Self {
        match &error {
            // Two transactions have given an address to two people at the same time; this is the later one.
            Error::Refused { code, message }
                if code == NOT_UNIQUE && message.contains(EMAIL_KEY) =>
            {
                Self::EmailTaken
            }
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

/// Whether the transaction may succeed if it is retried at once on a new connection. Retries are safe, because every
/// operation is idempotent.
fn is_worth_another_connection(error: &Error) -> bool {
    // The server shuts down; it has become a read-only replica; a deadlock or serialization failure; a table is missing.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{backoffice::sql::statement, db::testing::postgres_server::PostgresServer};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_change_is_not_made_outside_its_transaction() {
        let address = Address::parse(&PostgresServer::shared().database()).unwrap();
        let mut store = PostgresStore::new(address, Duration::from_secs(20));
        let count = [statement("SELECT count(*) FROM backoffice_spent", [])];
        store.run(&count).await.unwrap();
        let begin = std::mem::replace(&mut store.begin, "no statement".into());
        let insert = statement(
            "INSERT INTO backoffice_spent (digest, claim, expires_at) VALUES ('a', 'b', 1)",
            [],
        );
        assert!(store.run(&[insert]).await.is_err());
        store.begin = begin;
        let mut rows = store.run(&count).await.unwrap();
        assert_eq!(rows[0].int().unwrap(), 0);
    }
}
