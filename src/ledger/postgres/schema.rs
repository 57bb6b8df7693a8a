//! Creates the tables and functions in an empty database, by one gateway at a time.
//!
//! The database stores its version and the oldest version of a gateway that can use it, so that gateways of two
//! versions can run side by side while one replaces the other.

use tokio_postgres::types::Type;

use super::months;
use crate::{
    db::{
        copy,
        postgres::{Address, Connected, Error},
    },
    ledger::{OpenError, import::IS_UNFINISHED},
};

/// The version of the schema that this program creates.
const VERSION: i32 = 5;
/// The oldest version of a gateway that can use it.
const OLDEST: i32 = 5;

const SCHEMA: &str = concat!(
    include_str!("sql/tables.sql"),
    include_str!("sql/flush.sql"),
    include_str!("sql/steps.sql"),
    include_str!("sql/credit.sql"),
    include_str!("sql/budgets.sql"),
    include_str!("sql/idempotency.sql"),
    include_str!("sql/holds.sql"),
    include_str!("sql/ends.sql"),
    include_str!("sql/batch.sql"),
    include_str!("sql/admin.sql"),
    include_str!("sql/keys.sql"),
    include_str!("sql/gateways.sql"),
    include_str!("sql/cost.sql"),
    include_str!("sql/views.sql"),
    include_str!("sql/months.sql"),
    include_str!("sql/prune.sql"),
    include_str!("../../conversations/postgres/tables.sql"),
);

/// The state of the database's schema.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Version(i32),
    /// Created by a newer version that this one is not compatible with.
    OtherVersion {
        found: i32,
        known: i32,
    },
}

/// An arbitrary number that no other program uses.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7813223641001)";

/// Creates the tables if there are none, or returns why this program cannot use those there are.
pub(crate) async fn create_if_new(connection: &Connected) -> Result<Found, Error> {
    let found = read_version(connection).await?;
    if found != Found::Nothing {
        return Ok(found);
    }
    connection.batch_execute("BEGIN").await?;
    connection.batch_execute(LOCK).await?;
    // Another gateway may have created them while this one waited for the lock.
    if read_version(connection).await? == Found::Nothing {
        connection.batch_execute(SCHEMA).await?;
        connection.batch_execute(months::ADD).await?;
        connection.batch_execute(copy::SCHEMA).await?;
        connection
            .batch_execute(
                "CREATE TABLE tollgate (version integer NOT NULL, oldest integer NOT NULL)",
            )
            .await?;
        connection
            .execute_typed(
                "INSERT INTO tollgate VALUES ($1, $2)",
                &[(&VERSION, Type::INT4), (&OLDEST, Type::INT4)],
            )
            .await?;
    }
    connection.batch_execute("COMMIT").await?;
    read_version(connection).await
}

/// Checks a database without changing it.
pub(crate) async fn probe(address: &Address) -> Result<String, String> {
    let probed = address.probe().await.map_err(|error| error.to_string())?;
    let connection = address.connect().await.map_err(|error| error.to_string())?;
    let found = read_version(&connection)
        .await
        .map_err(|error| error.to_string())?;
    match found {
        Found::Nothing => Ok(format!("{probed}; tables will be created")),
        Found::Version(_) if is_being_imported(&connection).await? => {
            let address = address.to_string();
            Err(OpenError::UnfinishedImport { address }.to_string())
        }
        Found::Version(version) => Ok(format!("{probed}; tables of version {version}")),
        Found::OtherVersion { found, known } => Err(format!(
            "{address} was made by another version of tollgate (schema version {found}, this one uses {known})"
        )),
    }
}

async fn is_being_imported(connection: &Connected) -> Result<bool, String> {
    let row = connection.query_typed_one(IS_UNFINISHED, &[]).await;
    let is_unfinished = row.and_then(|row| row.try_get(0));
    is_unfinished.map_err(|error| Error::from(error).to_string())
}

/// Reads the schema's version; changes nothing.
pub(crate) async fn read_version(connection: &Connected) -> Result<Found, Error> {
    // Read from the catalog, because `to_regclass` may use what it had cached before it waited for the lock.
    let query = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class
        WHERE relname = 'tollgate' AND pg_catalog.pg_table_is_visible(oid))";
    let exists = connection.query_typed(query, &[]).await?;
    let exists: bool = exists.first().map_or(Ok(false), |row| row.try_get(0))?;
    if !exists {
        return Ok(Found::Nothing);
    }
    let rows = connection
        .query_typed("SELECT version, oldest FROM tollgate", &[])
        .await?;
    let Some(row) = rows.first() else {
        return Ok(Found::Nothing);
    };
    let (found, oldest): (i32, i32) = (row.try_get(0)?, row.try_get(1)?);
    Ok(if oldest > VERSION {
        Found::OtherVersion {
            found,
            known: VERSION,
        }
    } else {
        Found::Version(found.max(0))
    })
}
