//! `tollgate import`: moves everything from the SQLite files of a stopped gateway into an empty PostgreSQL database.
//!
//! It can be interrupted at any moment and run again. At the end both sides are audited and compared; until they are
//! equal, no gateway starts on the database.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};

mod compare;

use self::compare::Compared;
use super::{
    output::{OutputOption, tell},
    progress::Progress,
};
use crate::{
    backoffice, conversations,
    db::{
        copy::{self, CopyError, Part, Table, Totals},
        postgres::{Address, Connected, Error},
    },
    ledger::{self, Audit, spool},
};

#[derive(Args)]
pub(crate) struct Options {
    /// The database file of a stopped gateway, as in its `store.url`; the files beside it are imported too
    #[arg(long, value_name = "sqlite:FILE")]
    from: String,
    /// An empty PostgreSQL database
    #[arg(long, value_name = "postgres://…")]
    to: String,
    /// The folder of the gateway's spool [default: `spool` beside the file]
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,
    /// How many rows are copied in one transaction
    #[arg(long, hide = true, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    #[command(flatten)]
    output: OutputOption,
}

/// What is imported.
struct Source {
    /// The ledger's file.
    file: PathBuf,
    parts: [Part; 3],
    totals: Vec<Totals>,
    audit: Audit,
}

pub(crate) async fn run(options: &Options) -> Result<(), String> {
    let file = options.from.strip_prefix("sqlite:").ok_or(
        "`--from` must be `sqlite:` and the path of a file, e.g. `sqlite:data/tollgate.db`",
    )?;
    let file = Path::new(file);
    let address = Address::parse(&options.to).map_err(|mistake| format!("the URL {mistake}"))?;
    // Opening would create it.
    if !file.exists() {
        return Err(format!("{} does not exist", file.display()));
    }
    // Locked until the end, so that no gateway writes to it or to the spool meanwhile.
    let _locked = ledger::import::lock(file).await?;
    refuse_pending_charges(file, options.spool.as_deref())?;
    let source = examine(file)?;
    let target = ledger::import::connect(&address).await;
    let target = target.map_err(|error| error.to_string())?;
    let failed =
        |error: &dyn std::fmt::Display| format!("{address} cannot be imported to: {error}");
    begin(&target, &source)
        .await
        .map_err(|error| failed(&error))?;
    copy_all(&target, &source, options.batch)
        .await
        .map_err(|error| format!("{}. Run the command again to continue", failed(&error)))?;
    let compared = compare::all(&target, &address, &source).await;
    let compared = compared.map_err(|error| failed(&error))?;
    if !compared.differences.is_empty() {
        return Err(format!(
            "the copy in {address} differs, so gateways do not start on it; import into another empty database:\n- {}",
            compared.differences.join("\n- ")
        ));
    }
    let finished = ledger::import::finish(&target).await;
    finished.map_err(|error| failed(&error))?;
    let text = || as_text(&source, &compared, &address);
    options.output.print(text, &as_json(&source, &compared))
}

/// A charge that waits in the spool is not in the ledger yet, and the next gateway on the database would not know its
/// hold.
fn refuse_pending_charges(file: &Path, spool: Option<&Path>) -> Result<(), String> {
    let folder = spool.map_or_else(|| file.with_file_name("spool"), Path::to_owned);
    let shown = folder.display();
    let waiting = spool::count(&folder).map_err(|error| format!("{shown}: {error}"))?;
    let noun = match waiting {
        0 => return Ok(()),
        1 => "charge waits",
        _ => "charges wait",
    };
    Err(format!(
        "{waiting} {noun} in the spool {shown}: start the gateway on its file once more, which settles them, and stop it"
    ))
}

/// Counts and audits the source. Entries that do not add up are not imported: their cause is easier to find where they
/// were written.
fn examine(file: &Path) -> Result<Source, String> {
    let parts = [
        ledger::import::part(file),
        backoffice::import::part(file),
        conversations::import::part(file),
    ];
    let audit = ledger::audit_file(file)?;
    if let Some(violation) = audit.violations.first() {
        return Err(format!(
            "the ledger does not add up, so it is not imported: {}: {}. `tollgate audit --database {}` lists everything",
            violation.account_id,
            violation.what,
            file.display()
        ));
    }
    let mut totals = Vec::new();
    for part in &parts {
        totals.extend(part.totals().map_err(|error| error.to_string())?);
    }
    Ok(Source {
        file: file.to_owned(),
        parts,
        totals,
        audit,
    })
}

impl Source {
    fn tables(&self) -> impl Iterator<Item = &'static Table> {
        self.parts.iter().flat_map(|part| part.tables)
    }
}

/// Creates the tables and records that the import begins or continues.
async fn begin(target: &Connected, source: &Source) -> Result<(), String> {
    let created = backoffice::import::create_tables(target).await;
    created.map_err(|error| error.to_string())?;
    let fingerprint = copy::fingerprint(&source.parts, &source.totals);
    let fingerprint = fingerprint.map_err(|error| error.to_string())?;
    let names: Vec<&str> = source.tables().map(|table| table.name).collect();
    let begun = ledger::import::begin(target, &fingerprint, &names).await;
    begun.map_err(|error| error.to_string())?;
    ledger::import::add_months(target, &source.file).await
}

async fn copy_all(target: &Connected, source: &Source, batch: u32) -> Result<(), CopyError> {
    let before = copy::rows_copied(target).await?;
    if before > 0 {
        tell(&format!(
            "continuing an import; rows copied before: {before}"
        ));
    }
    let total: u64 = source.totals.iter().map(|totals| totals.rows).sum();
    let mut progress = Progress::new("rows", Some(total));
    let mut of_earlier_tables = 0;
    let mut totals = source.totals.iter();
    for part in &source.parts {
        for table in part.tables {
            let report = |rows| progress.set(of_earlier_tables + rows);
            copy::copy_table(target, part, table, batch, report).await?;
            of_earlier_tables += totals.next().map_or(0, |totals| totals.rows);
        }
    }
    drop(progress);
    copy::continue_identities(target, source.tables()).await?;
    ledger::import::continue_entries(target).await?;
    analyze(target, source).await?;
    Ok(())
}

/// Without statistics about so many new rows, the audit and the first gateways would get slow query plans.
async fn analyze(target: &Connected, source: &Source) -> Result<(), Error> {
    let tables: Vec<_> = source
        .tables()
        .map(|table| format!("\"{}\"", table.name))
        .collect();
    let analyze = format!("ANALYZE {}", tables.join(", "));
    Ok(target.batch_execute(&analyze).await?)
}

fn as_json(source: &Source, compared: &Compared) -> Value {
    let rows = source.totals.iter();
    let rows = rows.map(|totals| (totals.table.to_owned(), json!(totals.rows)));
    json!({
        "rows": rows.collect::<Map<_, _>>(), "balances": compared.balances,
        "entries": source.audit.entries, "charges": source.audit.charges, "equal": true,
    })
}

fn as_text(source: &Source, compared: &Compared, address: &Address) -> String {
    let width = source.totals.iter().map(|totals| totals.table.len()).max();
    let width = width.unwrap_or(0);
    let lines = source.totals.iter();
    let lines = lines.map(|totals| format!("{:width$}  {}\n", totals.table, totals.rows));
    format!(
        "{}\n{} balances, {} ledger entries ({} of them charges) and all sums are equal in both, and both add up.\n\
         Gateways can start on {address}. Keep {} until they have.",
        lines.collect::<String>(),
        compared.balances,
        source.audit.entries,
        source.audit.charges,
        source.file.display(),
    )
}
