//! Creates the backoffice's tables in PostgreSQL at the first use, one gateway at a time.
//!
//! The table `backoffice_schema` holds the version of the tables and the oldest gateway version that can use them, so that
//! gateways of two versions can run side by side during an upgrade. Tables that this gateway cannot use are left as they
//! are, and every operation fails with the reason.

use crate::{
    backoffice::schema::POSTGRES,
    db::postgres::{Connected, Error},
};

/// Version of the tables that this gateway creates.
const VERSION: i64 = 3;

/// The oldest gateway version that can use tables of this version.
const OLDEST: i64 = 3;

/// Advisory lock held while tables are created. The number is arbitrary; only this module uses it.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7813223641002)";

/// Creates the tables if there are none; fails if this gateway cannot use the existing ones.
///
/// `begin` is the statement that begins the transaction.
pub(crate) async fn create_if_missing(connection: &Connected, begin: &str) -> Result<(), Error> {
    if exist(connection).await? {
        return Ok(());
    }
    connection.batch_execute(begin).await?;
    connection.batch_execute(LOCK).await?;
    // Checked again, because another gateway may have created them while this one waited for the lock.
    if !exist(connection).await? {
        connection.batch_execute(POSTGRES).await?;
        let version = format!(
            "CREATE TABLE backoffice_schema (version BIGINT NOT NULL, oldest BIGINT NOT NULL);
             INSERT INTO backoffice_schema VALUES ({VERSION}, {OLDEST})"
        );
        connection.batch_execute(&version).await?;
    }
    Ok(connection.batch_execute("COMMIT").await?)
}

/// Whether the tables exist; an error if they have a version that this gateway cannot use.
async fn exist(connection: &Connected) -> Result<bool, Error> {
    // Queries the catalog, because `to_regclass` may use a cache from before the lock was acquired.
    let query = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class
        WHERE relname = 'backoffice_schema' AND pg_catalog.pg_table_is_visible(oid))";
    let exists = connection.query_typed_one(query, &[]).await?;
    if !exists.try_get::<_, bool>(0)? {
        return Ok(false);
    }
    let query = "SELECT version, oldest FROM backoffice_schema";
    let row = connection.query_typed_one(query, &[]).await?;
    let (version, oldest): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    if version < VERSION || oldest > VERSION {
        return Err(Error::Unexpected(format!(
            "its tables have schema version {version}, and this tollgate uses version {VERSION}; run the version that \
             made them, or use another database: see Upgrade in docs/OPERATIONS.md"
        )));
    }
    Ok(true)
}
