//! `tollgate export`: calls, ledger entries or daily usage as CSV or JSON lines, directly from the store.

use std::{io, path::PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;

mod date;
mod format;
mod output;
mod writer;

use self::{
    date::{Date, date},
    format::Format,
    output::Output,
    writer::RowWriter,
};
use super::{
    output::OutputOption,
    progress::with_commas,
    store_option::{NamedStore, StoreOption},
};
use crate::ledger::{
    self,
    export::{ExportError, Selection, Table},
};

#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// What to export
    #[arg(value_enum)]
    what: What,
    #[command(flatten)]
    store: StoreOption,
    /// The first day (UTC) or time, e.g. 2026-11-01 or 2026-11-01T08:00:00Z [default: the beginning]
    #[arg(long, value_name = "DATE", value_parser = date)]
    from: Option<Date>,
    /// The first day (UTC) or time that is no longer exported [default: no end]
    #[arg(long, value_name = "DATE", value_parser = date)]
    to: Option<Date>,
    /// The account to export, by its ID or email [default: all accounts]
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// How the rows are written
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,
    /// Write to this new file instead of standard output; it appears when it is complete
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the result as JSON: with --output its summary, otherwise the rows, as with --format jsonl
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Gateways may go on serving. Amounts are in billionths of a dollar (…_nano_usd), prices of one token in trillionths \
(…_pico_usd), times in milliseconds (…_ms) or seconds since 1970.

Examples:

  tollgate export usage --config tollgate.toml --from 2026-11-01 --to 2026-12-01
  tollgate export calls --database data/tollgate.db --output calls.csv
  tollgate export ledger --database postgres://… --account acct_… --format jsonl";

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Every call with its tokens, cost, times and outcome, in the order in which they ended
    Calls,
    /// Every grant, charge and expiry with the balance after it, by account
    Ledger,
    /// Calls, tokens and cost of each account by day, model and key
    Usage,
}

pub(crate) async fn run(options: &Options) -> Result<(), String> {
    let selection = options.selection()?;
    let store = options.store.find()?;
    let output = match &options.output {
        Some(file) => Output::file(file)?,
        None => Output::Stdout,
    };
    let format = if options.json && options.output.is_none() {
        Format::Jsonl
    } else {
        options.format
    };
    let mut rows = RowWriter::new(selection.table.columns(), format, output);
    let exported = match store {
        NamedStore::Postgres(address) => {
            ledger::export_database(&address, &selection, &mut rows).await
        }
        NamedStore::File { database, .. } => {
            let exporting = tokio::task::spawn_blocking(move || {
                let exported = ledger::export_file(&database, &selection, &mut rows);
                (exported, rows)
            });
            let (exported, written) = exporting.await.map_err(|error| error.to_string())?;
            rows = written;
            exported
        }
    };
    let finished = match exported {
        Ok(()) => rows.finish().map_err(ExportError::Output),
        Err(error) => Err(error),
    };
    match (finished, &options.output) {
        (Ok(count), Some(file)) => {
            let text = || format!("{}: {} rows", file.display(), with_commas(count));
            let json = json!({ "file": file, "rows": count });
            let output = OutputOption { json: options.json };
            output.print(text, &json)
        }
        (Ok(_), None) => Ok(()),
        // The reader of the pipe has seen enough, e.g. `head`.
        (Err(ExportError::Output(error)), None) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(())
        }
        (Err(error), _) => Err(error.to_string()),
    }
}

impl Options {
    fn selection(&self) -> Result<Selection, String> {
        let mut selection = Selection::all(match self.what {
            What::Calls => Table::Calls,
            What::Ledger => Table::Ledger,
            What::Usage => Table::Usage,
        });
        let dates = [self.from, self.to];
        if selection.table == Table::Usage && dates.iter().flatten().any(|date| !date.is_day) {
            return Err(
                "usage is stored by day: give --from and --to as days, e.g. 2026-11-01".into(),
            );
        }
        selection.account.clone_from(&self.account);
        if let Some(from) = self.from {
            selection.from = from.seconds;
        }
        if let Some(to) = self.to {
            selection.to = to.seconds;
        }
        if selection.from >= selection.to {
            return Err(
                "--from must be before --to, which is the first day that is not exported".into(),
            );
        }
        Ok(selection)
    }
}
