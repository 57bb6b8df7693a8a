//! How a command names the store that it works on: by a configuration file or directly.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::{
    config::{Config, StoreLocation},
    db::postgres::Address,
};

#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct StoreOption {
    /// The configuration file of the gateway; only its section `store` is read
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The gateway's database: a file, or `postgres://…`
    #[arg(long, value_name = "FILE|URL")]
    database: Option<String>,
}

/// The store of a gateway.
#[derive(Debug)]
pub(crate) enum NamedStore {
    File {
        database: PathBuf,
        /// The folder of pending charges.
        spool: PathBuf,
    },
    Postgres(Box<Address>),
}

impl StoreOption {
    pub(crate) fn named(config: Option<PathBuf>, database: Option<String>) -> Self {
        Self { config, database }
    }

    /// The store that was named; a database file must exist.
    pub(crate) fn find(&self) -> Result<NamedStore, String> {
        let named = match (&self.config, &self.database) {
            (Some(file), _) => configured(file)?,
            (None, Some(database)) => direct(database)?,
            // The group requires one of the two.
            (None, None) => return Err("name the store with --config or --database".into()),
        };
        match &named {
            NamedStore::File { database, .. } if !database.is_file() => Err(format!(
                "there is no database {}; name that of the gateway with --database or --config",
                database.display()
            )),
            _ => Ok(named),
        }
    }
}

fn configured(file: &Path) -> Result<NamedStore, String> {
    let store = Config::load_store(file).map_err(|error| error.to_string())?;
    Ok(match store.location {
        StoreLocation::File(database) => NamedStore::File {
            database,
            spool: store.spool,
        },
        StoreLocation::Postgres { address, .. } => NamedStore::Postgres(address),
    })
}

fn direct(database: &str) -> Result<NamedStore, String> {
    if database.starts_with("postgres:") || database.starts_with("postgresql:") {
        let address = Address::parse(database).map_err(|mistake| format!("the URL {mistake}"))?;
        return Ok(NamedStore::Postgres(Box::new(address)));
    }
    // As in a configuration file.
    let path = database.strip_prefix("sqlite:").unwrap_or(database);
    let location = StoreLocation::File(path.into());
    Ok(NamedStore::File {
        spool: location.default_spool(),
        database: path.into(),
    })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn find(config: Option<PathBuf>, database: Option<&str>) -> Result<NamedStore, String> {
        let database = database.map(str::to_owned);
        StoreOption { config, database }.find()
    }

    #[test]
    fn a_configuration_needs_no_other_section_and_no_secret() {
        let folder = TempDir::new().unwrap();
        let (file, database) = (folder.path().join("t.toml"), folder.path().join("t.db"));
        std::fs::write(&database, "").unwrap();
        let text = format!(
            "[operator]\ntoken_env = \"NOT_SET_ANYWHERE\"\n[store]\nurl = \"sqlite:{}\"\nspool = \"elsewhere\"\n",
            database.display()
        );
        std::fs::write(&file, text).unwrap();
        let NamedStore::File {
            database: found,
            spool,
        } = find(Some(file.clone()), None).unwrap()
        else {
            panic!("it is a file");
        };
        assert_eq!((found, spool), (database, folder.path().join("elsewhere")));

        std::fs::write(&file, "[store]\nurl = 7\n").unwrap();
        let error = find(Some(file), None).unwrap_err();
        assert!(error.contains("line 2: `store.url`"), "{error}");
    }

    #[test]
    fn a_database_is_a_file_that_exists_or_a_url() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("t.db");
        let text = path.to_str().unwrap();
        let error = find(None, Some(text)).unwrap_err();
        assert!(
            error.contains(&format!("there is no database {text}")),
            "{error}"
        );
        std::fs::write(&path, "").unwrap();
        for written in [text.to_owned(), format!("sqlite:{text}")] {
            let NamedStore::File { spool, .. } = find(None, Some(&written)).unwrap() else {
                panic!("it is a file");
            };
            assert_eq!(spool, folder.path().join("spool"));
        }
        let found = find(None, Some("postgres://tollgate@db/tollgate")).unwrap();
        assert!(matches!(found, NamedStore::Postgres(_)), "{found:?}");
        let error = find(None, Some("postgres://db:x/tollgate?secret=1")).unwrap_err();
        assert!(error.starts_with("the URL "), "{error}");
    }
}
