//! Stored responses in a PostgreSQL database that several gateways share.
//!
//! Each operation is one statement and so one transaction. Concurrent operations are pipelined on one connection. Stores
//! wait for a lock, so reads have a connection of their own.

use std::sync::Arc;

use tokio::{
    sync::Semaphore,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};
use tokio_util::task::AbortOnDropHandle;

mod lane;

use self::lane::{Lane, Retry};
use super::{Cause, Record, Settings, StorageError, health::Health};
use crate::{
    base::clock::Clock,
    db::postgres::{Address, Error},
};

pub struct PostgresStore {
    database: Arc<Database>,
    _upkeep: AbortOnDropHandle<()>,
}

struct Database {
    reads: Lane,
    writes: Lane,
    /// One permit per operation in progress.
    permits: Semaphore,
    health: Health,
    clock: Clock,
    settings: Settings,
}

type Values<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

impl PostgresStore {
    pub(super) fn open(address: Address, settings: Settings, clock: Clock) -> Self {
        // Shorter than the deadline of an operation, so that the caller gets the reason.
        let timeout = settings.deadline * 3 / 4;
        let database = Arc::new(Database {
            reads: Lane::new(address.clone(), timeout),
            writes: Lane::new(address, timeout),
            permits: Semaphore::new(settings.max_waiting),
            health: Health::default(),
            clock,
            settings,
        });
        let upkeep = tokio::spawn(sweep_periodically(database.clone()));
        Self {
            database,
            _upkeep: AbortOnDropHandle::new(upkeep),
        }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.database.settings
    }

    pub(crate) async fn store(&self, record: &Record) -> Result<(), StorageError> {
        let database = &self.database;
        let Settings {
            retention_ms,
            per_account,
            in_all,
            ..
        } = database.settings;
        let values: Values<'_> = &[
            (&record.id, Type::TEXT),
            (&record.account_id, Type::TEXT),
            (&record.response.as_bytes(), Type::BYTEA),
            (&record.input.as_bytes(), Type::BYTEA),
            (&record.events.as_deref().map(str::as_bytes), Type::BYTEA),
            (&database.clock_ms(), Type::INT8),
            (&retention_ms, Type::INT8),
            (&i64::from(per_account), Type::INT8),
            (&i64::from(in_all), Type::INT8),
        ];
        let statement = "SELECT store_response($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        database
            .run(&database.writes, Retry::Idempotent, statement, values)
            .await?;
        Ok(())
    }

    pub(crate) async fn find(
        &self,
        account_id: &str,
        id: &str,
    ) -> Result<Option<Record>, StorageError> {
        if has_zero_byte(account_id, id) {
            return Ok(None);
        }
        let database = &self.database;
        let statement = "SELECT id, account_id, response, input, events FROM responses
                         WHERE id = $1 AND account_id = $2 AND stored_ms > responses_now($3) - $4";
        let values: Values<'_> = &[
            (&id, Type::TEXT),
            (&account_id, Type::TEXT),
            (&database.clock_ms(), Type::INT8),
            (&database.settings.retention_ms, Type::INT8),
        ];
        let rows = database
            .run(&database.reads, Retry::Idempotent, statement, values)
            .await?;
        let record = rows.first().map(record).transpose();
        record.map_err(|error| database.failed(error))
    }

    pub(crate) async fn delete_all_of(&self, account_id: &str) -> Result<(), StorageError> {
        let database = &self.database;
        let statement = "DELETE FROM responses WHERE account_id = $1";
        let values: Values<'_> = &[(&account_id, Type::TEXT)];
        let deleted = database.run(&database.writes, Retry::Idempotent, statement, values);
        deleted.await?;
        Ok(())
    }

    pub(crate) async fn delete(&self, account_id: &str, id: &str) -> Result<bool, StorageError> {
        if has_zero_byte(account_id, id) {
            return Ok(false);
        }
        let database = &self.database;
        let statement = "DELETE FROM responses
                         WHERE id = $1 AND account_id = $2 AND stored_ms > responses_now($3) - $4
                         RETURNING true";
        let values: Values<'_> = &[
            (&id, Type::TEXT),
            (&account_id, Type::TEXT),
            (&database.clock_ms(), Type::INT8),
            (&database.settings.retention_ms, Type::INT8),
        ];
        // A retry after a successful deletion would report that there was no record.
        let deleted = database.run(&database.writes, Retry::IfNotExecuted, statement, values);
        Ok(!deleted.await?.is_empty())
    }

    #[cfg(test)]
    pub(super) fn is_failing(&self) -> bool {
        self.database.health.is_failing()
    }
}

/// Whether one of the IDs has a zero byte, which PostgreSQL refuses in a text. No record has such an ID.
fn has_zero_byte(account_id: &str, id: &str) -> bool {
    account_id.contains('\0') || id.contains('\0')
}

fn record(row: &Row) -> Result<Record, Error> {
    let as_text = |bytes: Vec<u8>| {
        String::from_utf8(bytes).map_err(|error| Error::Unexpected(error.to_string()))
    };
    let text = |column| -> Result<String, Error> { as_text(row.try_get(column)?) };
    let events: Option<Vec<u8>> = row.try_get(4)?;
    Ok(Record {
        id: row.try_get(0)?,
        account_id: row.try_get(1)?,
        response: text(2)?,
        input: text(3)?,
        events: events.map(as_text).transpose()?.map(Arc::from),
    })
}

/// Deletes expired records, at once and then at intervals.
async fn sweep_periodically(database: Arc<Database>) {
    let mut ticks = interval(database.settings.sweep_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let statement = "SELECT sweep_responses($1, $2)";
        let values: Values<'_> = &[
            (&database.clock_ms(), Type::INT8),
            (&database.settings.retention_ms, Type::INT8),
        ];
        // A failure was logged by `run`, and the next sweep follows.
        let _ = database
            .run(&database.writes, Retry::Idempotent, statement, values)
            .await;
    }
}

impl Database {
    async fn run(
        &self,
        lane: &Lane,
        retry: Retry,
        statement: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, StorageError> {
        let Ok(_permit) = self.permits.try_acquire() else {
            self.health.report_failure(&Cause::QueueFull);
            return Err(Cause::QueueFull.into());
        };
        let result = timeout(self.settings.deadline, lane.query(retry, statement, values)).await;
        let Ok(result) = result else {
            self.health.report_failure(&StorageError::TimedOut);
            return Err(StorageError::TimedOut);
        };
        let rows = result.map_err(|error| self.failed(error))?;
        // Only while no other operation is in progress: under overload, successes and failures alternate, and each
        // change would be logged.
        if self.permits.available_permits() + 1 == self.settings.max_waiting {
            self.health.report_success();
        }
        Ok(rows)
    }

    fn failed(&self, source: Error) -> StorageError {
        let cause = Cause::Postgres {
            address: self.reads.address().to_string(),
            source,
        };
        self.health.report_failure(&cause);
        cause.into()
    }

    /// The time of a manual clock, for tests; `None` for the server's time.
    fn clock_ms(&self) -> Option<i64> {
        match &self.clock {
            Clock::System => None,
            clock @ Clock::Manual(_) => Some(clock.now_ms()),
        }
    }
}
