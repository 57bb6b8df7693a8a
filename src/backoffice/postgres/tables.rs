//! Tables of today: made or brought up to date at the first use, by one gateway at a time.
//!
//! The database remembers their version, and the oldest gateway that can still live with it, so that
//! gateways of two versions can run side by side while one replaces the other.

use tokio_postgres::types::Type;

use crate::{
    backoffice::schema::IN_POSTGRES,
    db::postgres::{Connected, Error},
};

/// The first version of gateways that can live with the tables of this one.
const OLDEST: i64 = 1;

/// Any number that nobody else takes.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7813223641002)";

/// Brings the tables up to date, or says why this program cannot use them.
pub async fn bring_up_to_date(connection: &Connected, begin: &str) -> Result<(), Error> {
    if version(connection).await? >= known() {
        return Ok(());
    }
    connection.batch_execute(begin).await?;
    connection.batch_execute(LOCK).await?;
    // Another may have done it meanwhile.
    let seen = version(connection).await?;
    if seen == 0 {
        let table =
            "CREATE TABLE backoffice_schema (version BIGINT NOT NULL, oldest BIGINT NOT NULL);
                     INSERT INTO backoffice_schema VALUES (0, 0)";
        connection.batch_execute(table).await?;
    }
    let done = usize::try_from(seen).unwrap_or(0);
    for migration in IN_POSTGRES.iter().skip(done) {
        connection.batch_execute(migration).await?;
    }
    // One that another has just brought further is left as it is.
    connection
        .execute_typed(
            "UPDATE backoffice_schema SET version = $1, oldest = $2 WHERE version < $1",
            &[(&known(), Type::INT8), (&OLDEST, Type::INT8)],
        )
        .await?;
    Ok(connection.batch_execute("COMMIT").await?)
}

/// How many migrations the tables have seen.
async fn version(connection: &Connected) -> Result<i64, Error> {
    // Of the catalog itself: `to_regclass` may go by what it knew before it waited for the lock.
    let query = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class
        WHERE relname = 'backoffice_schema' AND pg_catalog.pg_table_is_visible(oid))";
    let exists = connection.query_typed_one(query, &[]).await?;
    if !exists.try_get::<_, bool>(0)? {
        return Ok(0);
    }
    let query = "SELECT version, oldest FROM backoffice_schema";
    let row = connection.query_typed_one(query, &[]).await?;
    let (version, oldest): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    if oldest > known() {
        let known = known();
        return Err(Error::Unexpected(format!(
            "its tables were made by a newer tollgate (version {version}, this one knows {known})"
        )));
    }
    Ok(version)
}

fn known() -> i64 {
    i64::try_from(IN_POSTGRES.len()).unwrap_or(i64::MAX)
}
