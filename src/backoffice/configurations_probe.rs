//! Reads the newest version of the configuration for `tollgate check`, which creates nothing.

use super::path_beside;
use crate::{config::StoreLocation, db::sqlite};

const TABLE: &str = "SELECT to_regclass('backoffice_config_versions') IS NOT NULL";

/// The number and the content of the newest version; `None` if there is none, or no store yet.
pub(crate) async fn newest_config(
    location: &StoreLocation,
) -> Result<Option<(i64, String)>, String> {
    match location {
        StoreLocation::File(database) => {
            let file = path_beside(database);
            if !file.exists() {
                return Ok(None);
            }
            let connection = sqlite::read_only(&file).map_err(|error| error.to_string())?;
            let Some(connection) = connection else {
                return Ok(None);
            };
            let select = "SELECT number, content FROM backoffice_config_versions ORDER BY number DESC LIMIT 1";
            let found = connection.query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?)));
            match found {
                Ok(newest) => Ok(Some(newest)),
                Err(rusqlite::Error::QueryReturnedNoRows) => Ok(None),
                Err(error) => Err(error.to_string()),
            }
        }
        StoreLocation::Postgres { address, .. } => {
            let connection = address.connect().await;
            let connection = connection.map_err(|error| error.to_string())?;
            let failed = |error: tokio_postgres::Error| error.to_string();
            let exists = connection
                .query_typed_one(TABLE, &[])
                .await
                .map_err(failed)?;
            if !exists.try_get::<_, bool>(0).map_err(failed)? {
                return Ok(None);
            }
            let select = "SELECT number, content FROM backoffice_config_versions ORDER BY number DESC LIMIT 1";
            let rows = connection.query_typed(select, &[]).await.map_err(failed)?;
            let newest = rows
                .first()
                .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
                .transpose();
            newest.map_err(failed)
        }
    }
}
