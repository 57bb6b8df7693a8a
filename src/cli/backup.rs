//! `tollgate backup`: copies the files of a gateway with SQLite while it serves.
//!
//! The order keeps what refers to other files older than what it refers to. A charge that moves from the spool to the
//! ledger meanwhile is in both copies, and is charged once when they are used. A payment that is credited meanwhile is in
//! the copied ledger, and one that the copied portal has credited is in it as well. The ledger's copy gets its name last:
//! if it is there, the backup is complete.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::{Value, json};

use super::{
    new_file::{NewFile, create_private_folder, refuse_to_overwrite},
    output::{OutputOption, tell},
    progress::{Progress, with_commas},
    store_option::{NamedStore, StoreOption},
};
use crate::{backoffice, conversations, db, ledger};

#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// The copy of the ledger, a new file that ends with .db; the other copies are named after it, and its folder is created
    #[arg(value_name = "FILE")]
    copy: PathBuf,
    #[command(flatten)]
    store: StoreOption,
    #[command(flatten)]
    output: OutputOption,
}

const HELP: &str = "\
The gateway may go on serving: the copy has every call that had ended before the command was started. With PostgreSQL, \
use pg_dump or a base backup instead.

Example:

  tollgate backup backups/monday.db --config tollgate.toml

makes these files:

  backups/monday.db            the ledger
  backups/monday.portal.db     people, sessions, payments, alerts, changes of the console
  backups/monday.responses.db  stored responses
  backups/monday.spool         charges that wait to be written, if there are any";

/// A complete copy that has no name yet.
struct Copied {
    what: &'static str,
    original: PathBuf,
    path: PathBuf,
    new: NewFile,
}

pub(crate) async fn run(options: Options) -> Result<(), String> {
    let (database, spool) = match options.store.find()? {
        NamedStore::File { database, spool } => (database, spool),
        NamedStore::Postgres(address) => {
            return Err(format!(
                "{address} is PostgreSQL, which has its own tools: \
                 `pg_dump --format=custom --file=tollgate.dump`, or a base backup with an archive of the WAL. \
                 Charges in the spool folders of gateways are not in it; keep these folders"
            ));
        }
    };
    let shown = (database.clone(), spool.clone());
    let copy = options.copy;
    let backing_up = tokio::task::spawn_blocking(move || back_up(&copy, &database, &spool));
    let files = backing_up.await.map_err(|error| error.to_string())??;
    let text = || as_text(&files, &shown.0, &shown.1);
    options.output.print(text, &as_json(&files))
}

/// Copies all files and gives them their names.
fn back_up(copy: &Path, database: &Path, spool: &Path) -> Result<Vec<BackupFile>, String> {
    if copy.extension().is_none_or(|ending| ending != "db") {
        return Err(format!(
            "{} does not end with .db; the other copies are named after it, e.g. 2026-11-16.db, 2026-11-16.portal.db",
            copy.display()
        ));
    }
    let copies = Copies { copy, database };
    copies.refuse_to_overwrite()?;
    create_private_folder(copy)?;
    let mut done = Vec::new();
    done.extend(copies.spool(spool)?);
    done.extend(copies.beside("stored responses", conversations::path_beside)?);
    done.extend(copies.beside(
        "people, sessions, payments, alerts, changes of the console",
        backoffice::path_beside,
    )?);
    done.push(copies.ledger()?);
    done.into_iter().map(Copied::finish).collect()
}

struct Copies<'a> {
    copy: &'a Path,
    database: &'a Path,
}

impl Copies<'_> {
    /// Also those that this backup will not have: old ones would be taken for its own.
    fn refuse_to_overwrite(&self) -> Result<(), String> {
        let beside = [
            conversations::path_beside(self.copy),
            backoffice::path_beside(self.copy),
            self.copy.with_extension("spool"),
        ];
        refuse_to_overwrite(self.copy)?;
        beside.iter().try_for_each(|path| refuse_to_overwrite(path))
    }

    /// All pending charges in one file; `None` if there are none.
    fn spool(&self, folder: &Path) -> Result<Option<Copied>, String> {
        let shown = folder.display();
        let waiting = ledger::spool::waiting_in(folder);
        let waiting = waiting.map_err(|error| format!("{shown} cannot be read: {error}"))?;
        if waiting.unreadable > 0 {
            tell(&format!(
                "tollgate: {} charges in {shown} cannot be read and are not copied; keep the folder",
                waiting.unreadable
            ));
        }
        if waiting.charges == 0 {
            return Ok(None);
        }
        let path = self.copy.with_extension("spool");
        let mut new = NewFile::create(&path)?;
        let written = new.file.write_all(&waiting.lines);
        written.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        Ok(Some(Copied {
            what: "pending charges",
            original: folder.join("restored.spool"),
            path,
            new,
        }))
    }

    /// A file beside the ledger; `None` if the gateway has not created it.
    fn beside(
        &self,
        what: &'static str,
        path_beside: fn(&Path) -> PathBuf,
    ) -> Result<Option<Copied>, String> {
        let original = path_beside(self.database);
        if !original.exists() {
            return Ok(None);
        }
        let path = path_beside(self.copy);
        let new = NewFile::create(&path)?;
        let mut progress = Progress::new("pages", None);
        let mut report = |done, total| progress.set_of(done, total);
        let copied = db::sqlite::back_up(&original, new.part(), &mut report);
        copied.map_err(|error| format!("{} cannot be copied: {error}", original.display()))?;
        Ok(Some(Copied {
            what,
            original,
            path,
            new,
        }))
    }

    fn ledger(&self) -> Result<Copied, String> {
        let new = NewFile::create(self.copy)?;
        let mut progress = Progress::new("pages", None);
        let mut report = |done, total| progress.set_of(done, total);
        ledger::back_up_file(self.database, new.part(), &mut report)?;
        Ok(Copied {
            what: "ledger",
            original: self.database.to_owned(),
            path: self.copy.to_owned(),
            new,
        })
    }
}

/// A file of the backup.
struct BackupFile {
    what: &'static str,
    original: PathBuf,
    path: PathBuf,
    bytes: u64,
}

impl Copied {
    /// Flushes the copy to the disk and gives it its name.
    fn finish(self) -> Result<BackupFile, String> {
        let Self {
            what,
            original,
            path,
            new,
        } = self;
        let bytes = new.finish();
        let bytes =
            bytes.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        Ok(BackupFile {
            what,
            original,
            path,
            bytes,
        })
    }
}

fn as_text(files: &[BackupFile], database: &Path, spool: &Path) -> String {
    let made = files.iter().map(|file| {
        let (path, bytes) = (file.path.display(), with_commas(file.bytes));
        format!("{path}  {bytes} bytes  {}", file.what)
    });
    let made: Vec<_> = made.collect();
    let restoring = files
        .iter()
        .map(|file| format!("  cp {} {}", file.path.display(), file.original.display()));
    let restoring: Vec<_> = restoring.collect();
    let (made, restoring) = (made.join("\n"), restoring.join("\n"));
    let old_files = database.with_extension("*");
    let (old_files, spool) = (old_files.display(), spool.display());
    let database = database.display();
    format!(
        "{made}\n\n\
         To restore it, stop the gateway and move its old files away, {old_files}: a -wal file that stayed behind\n\
         would damage the restored one. Leave {spool} where it is. Then\n\n\
         {restoring}\n  tollgate audit --database {database}\n\n\
         and start the gateway."
    )
}

fn as_json(files: &[BackupFile]) -> Value {
    let files = files.iter().map(|file| {
        json!({
            "what": file.what, "file": file.path, "bytes": file.bytes, "restore_to": file.original,
        })
    });
    json!({ "files": files.collect::<Vec<_>>() })
}
