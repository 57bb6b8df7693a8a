//! Tables and functions of today: made or brought up to date at the start, by one gateway at a time.
//!
//! The database remembers its version, and the oldest gateway that can still live with it, so that
//! gateways of two versions can run side by side while one replaces the other.

use tokio_postgres::types::Type;

use crate::db::postgres::{Address, Connected, Error};

/// One after the other, each once. Functions are replaced by the last.
const MIGRATIONS: [Migration; 3] = [
    Migration {
        sql: concat!(
            include_str!("sql/1_tables.sql"),
            include_str!("../../conversations/postgres/tables.sql"),
        ),
        oldest: 1,
    },
    Migration {
        sql: include_str!("sql/2_since_version_1.sql"),
        oldest: 2,
    },
    Migration {
        sql: concat!(
            include_str!("sql/3_prices.sql"),
            include_str!("sql/steps.sql"),
            include_str!("sql/admin.sql"),
            include_str!("sql/cost.sql"),
        ),
        // The audit of an earlier gateway would price calls without these columns.
        oldest: 3,
    },
];

struct Migration {
    sql: &'static str,
    /// The first version of gateways that can live with this one's tables.
    oldest: i32,
}

/// What the database's tables are to this program.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Version(i32),
    /// Made by a newer program, which this one cannot live with.
    TooNew {
        found: i32,
        known: i32,
    },
}

/// Any number that nobody else takes.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7813223641001)";

/// Brings the tables up to date, or says why this program cannot use them.
pub async fn bring_up_to_date(connection: &Connected) -> Result<Found, Error> {
    let found = look(connection).await?;
    // A newer one that this program can live with is left as it is.
    match found {
        Found::Version(version) if version >= known() => return Ok(found),
        Found::TooNew { .. } => return Ok(found),
        _ => {}
    }
    connection.batch_execute("BEGIN").await?;
    connection.batch_execute(LOCK).await?;
    // Another may have done it meanwhile.
    let found = look(connection).await?;
    let from = match found {
        Found::Nothing => {
            connection
                .batch_execute(
                    "CREATE TABLE tollgate (version integer NOT NULL, oldest integer NOT NULL);
                    INSERT INTO tollgate VALUES (0, 0)",
                )
                .await?;
            0
        }
        Found::Version(version) => version,
        Found::TooNew { .. } => known(),
    };
    let done = usize::try_from(from).unwrap_or(0);
    for migration in MIGRATIONS.iter().skip(done) {
        connection.batch_execute(migration.sql).await?;
    }
    if let Some(last) = MIGRATIONS.last().filter(|_| done < MIGRATIONS.len()) {
        connection
            .execute_typed(
                "UPDATE tollgate SET version = $1, oldest = $2",
                &[(&known(), Type::INT4), (&last.oldest, Type::INT4)],
            )
            .await?;
    }
    connection.batch_execute("COMMIT").await?;
    look(connection).await
}

/// Looks at a database without changing it.
pub async fn probe(address: &Address) -> Result<String, String> {
    let probed = address.probe().await.map_err(|error| error.to_string())?;
    let connection = address.connect().await.map_err(|error| error.to_string())?;
    let found = look(&connection).await.map_err(|error| error.to_string())?;
    match found {
        Found::Nothing => Ok(format!("{probed}; tables will be created")),
        Found::Version(version) => Ok(format!("{probed}; tables of version {version}")),
        Found::TooNew { found, known } => Err(format!(
            "{address} was made by a newer tollgate (version {found}, this one knows {known})"
        )),
    }
}

/// Which version the tables have; changes nothing.
pub async fn look(connection: &Connected) -> Result<Found, Error> {
    // Of the catalog itself: `to_regclass` may go by what it knew before it waited for the lock.
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
    Ok(if oldest > known() {
        Found::TooNew {
            found,
            known: known(),
        }
    } else {
        Found::Version(found.max(0))
    })
}

fn known() -> i32 {
    i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX)
}
