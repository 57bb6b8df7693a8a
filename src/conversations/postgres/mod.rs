//! Stored responses in a database that several gateways share.
//!
//! Each use is one statement, and so one transaction. Many go over one connection at the same time;
//! what stores waits for a lock, so what finds has a connection of its own.

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

use self::lane::{Lane, Repeat};
use super::{Cause, Record, Settings, StorageError, health::Health};
use crate::{
    base::clock::Clock,
    db::postgres::{Address, Error},
};

pub struct InDatabase {
    database: Arc<Database>,
    _upkeep: AbortOnDropHandle<()>,
}

struct Database {
    reads: Lane,
    writes: Lane,
    /// A place for each that waits.
    places: Semaphore,
    health: Health,
    clock: Clock,
    settings: Settings,
}

type Values<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

impl InDatabase {
    pub(super) fn open(address: Address, settings: Settings, clock: Clock) -> Self {
        // Less than anyone waits in all, so that they hear why.
        let timeout = settings.deadline * 3 / 4;
        let database = Arc::new(Database {
            reads: Lane::new(address.clone(), timeout),
            writes: Lane::new(address, timeout),
            places: Semaphore::new(settings.waiting),
            health: Health::default(),
            clock,
            settings,
        });
        let upkeep = tokio::spawn(keep_up(database.clone()));
        Self {
            database,
            _upkeep: AbortOnDropHandle::new(upkeep),
        }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.database.settings
    }

    pub async fn store(&self, record: &Record) -> Result<(), StorageError> {
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
            (&database.told_ms(), Type::INT8),
            (&retention_ms, Type::INT8),
            (&i64::from(per_account), Type::INT8),
            (&i64::from(in_all), Type::INT8),
        ];
        let statement = "SELECT store_response($1, $2, $3, $4, $5, $6, $7, $8)";
        database
            .run(&database.writes, Repeat::Harmless, statement, values)
            .await?;
        Ok(())
    }

    pub async fn find(&self, account_id: &str, id: &str) -> Result<Option<Record>, StorageError> {
        if cannot_be(account_id, id) {
            return Ok(None);
        }
        let database = &self.database;
        let statement = "SELECT id, account_id, response, input FROM responses
                         WHERE id = $1 AND account_id = $2 AND stored_ms > responses_now($3) - $4";
        let values: Values<'_> = &[
            (&id, Type::TEXT),
            (&account_id, Type::TEXT),
            (&database.told_ms(), Type::INT8),
            (&database.settings.retention_ms, Type::INT8),
        ];
        let rows = database
            .run(&database.reads, Repeat::Harmless, statement, values)
            .await?;
        let record = rows.first().map(record).transpose();
        record.map_err(|error| database.failed(error))
    }

    pub async fn delete(&self, account_id: &str, id: &str) -> Result<bool, StorageError> {
        if cannot_be(account_id, id) {
            return Ok(false);
        }
        let database = &self.database;
        let statement = "DELETE FROM responses
                         WHERE id = $1 AND account_id = $2 AND stored_ms > responses_now($3) - $4
                         RETURNING true";
        let values: Values<'_> = &[
            (&id, Type::TEXT),
            (&account_id, Type::TEXT),
            (&database.told_ms(), Type::INT8),
            (&database.settings.retention_ms, Type::INT8),
        ];
        // Said twice, it would not know of what it has deleted itself.
        let deleted = database.run(&database.writes, Repeat::IfNotDone, statement, values);
        Ok(!deleted.await?.is_empty())
    }

    #[cfg(test)]
    pub(super) fn is_failing(&self) -> bool {
        self.database.health.is_failing()
    }
}

/// PostgreSQL refuses a text with a zero byte; nothing has such a name.
fn cannot_be(account_id: &str, id: &str) -> bool {
    account_id.contains('\0') || id.contains('\0')
}

fn record(row: &Row) -> Result<Record, Error> {
    let text = |column| -> Result<String, Error> {
        let bytes: Vec<u8> = row.try_get(column)?;
        String::from_utf8(bytes).map_err(|error| Error::Unexpected(error.to_string()))
    };
    Ok(Record {
        id: row.try_get(0)?,
        account_id: row.try_get(1)?,
        response: text(2)?,
        input: text(3)?,
    })
}

/// Deletes what has expired, at once and from time to time.
async fn keep_up(database: Arc<Database>) {
    let mut ticks = interval(database.settings.sweep_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let statement = "SELECT sweep_responses($1, $2)";
        let values: Values<'_> = &[
            (&database.told_ms(), Type::INT8),
            (&database.settings.retention_ms, Type::INT8),
        ];
        // Where it fails, health has said so, and the next time comes.
        let _ = database
            .run(&database.writes, Repeat::Harmless, statement, values)
            .await;
    }
}

impl Database {
    async fn run(
        &self,
        lane: &Lane,
        repeat: Repeat,
        statement: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, StorageError> {
        let Ok(_place) = self.places.try_acquire() else {
            self.health.fails(&Cause::QueueFull);
            return Err(Cause::QueueFull.into());
        };
        let answer = timeout(self.settings.deadline, lane.ask(repeat, statement, values)).await;
        let Ok(answer) = answer else {
            self.health.fails(&StorageError::TimedOut);
            return Err(StorageError::TimedOut);
        };
        let rows = answer.map_err(|error| self.failed(error))?;
        // Not while others wait, or a gateway under too much load would log at every turn.
        if self.places.available_permits() + 1 == self.settings.waiting {
            self.health.works();
        }
        Ok(rows)
    }

    fn failed(&self, source: Error) -> StorageError {
        let cause = Cause::Postgres {
            address: self.reads.address().to_string(),
            source,
        };
        self.health.fails(&cause);
        cause.into()
    }

    /// The time, where it is not the server's: by a clock that is set.
    fn told_ms(&self) -> Option<i64> {
        match &self.clock {
            Clock::System => None,
            clock @ Clock::Manual(_) => Some(clock.now_ms()),
        }
    }
}
