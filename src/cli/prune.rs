//! `tollgate prune`: removes the calls of old months, directly in the database.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use super::{
    output::OutputOption,
    progress::{Progress, with_commas},
    store_option::{NamedStore, StoreOption},
};
use crate::{
    base::{month::Month, timestamp},
    ledger::{self, Pruned},
};

#[derive(Args)]
pub(crate) struct Options {
    /// Remove the calls and ledger entries of all whole months (UTC) before this day, e.g. 2026-01-01
    #[arg(long, value_name = "DATE")]
    before: String,
    /// Keep the detached tables of PostgreSQL, e.g. to archive them, instead of dropping them
    #[arg(long)]
    keep_tables: bool,
    #[command(flatten)]
    store: StoreOption,
    #[command(flatten)]
    output: OutputOption,
}

pub(crate) async fn run(options: &Options) -> Result<(), String> {
    let before = cutoff(&options.before, Month::of_ms(timestamp::now_ms()))?;
    let pruned = match options.store.find()? {
        NamedStore::File { .. } if options.keep_tables => {
            return Err("--keep-tables is for PostgreSQL; export the calls of a file first".into());
        }
        NamedStore::File { database, .. } => prune_file(&database, before)?,
        NamedStore::Postgres(address) => {
            let pruned =
                ledger::prune_database(&address, before.first_ms(), options.keep_tables).await;
            pruned.map_err(|error| format!("{address} cannot be pruned: {error}"))?
        }
    };
    let text = || as_text(&pruned, before, options.keep_tables);
    options
        .output
        .print(text, &as_json(&pruned, before, options.keep_tables))
}

/// The first month that stays: that of the date. The present month cannot be removed.
fn cutoff(date: &str, present: Month) -> Result<Month, String> {
    let before = Month::of_day(date)
        .ok_or_else(|| format!("`{date}` is no date; write it like {}", present.first_day()))?;
    if before > present {
        let latest = present.first_day();
        return Err(format!(
            "{date} is in the future; the latest date is {latest}, which keeps the present month"
        ));
    }
    Ok(before)
}

fn prune_file(database: &Path, before: Month) -> Result<Pruned, String> {
    let mut progress = Progress::new("calls removed", None);
    ledger::prune_file(database, before, &mut |calls| progress.set(calls))
}

fn as_text(pruned: &Pruned, before: Month, keep_tables: bool) -> String {
    let first_day = before.first_day();
    if pruned == &Pruned::default() {
        return format!("There are no calls or entries from before {first_day}.");
    }
    let mut text = format!(
        "Removed {} calls and {} ledger entries from before {first_day}. Daily sums stay, and each account has its \
         balance as an opening entry. Check with `tollgate audit`.",
        with_commas(pruned.calls),
        with_commas(pruned.entries)
    );
    if keep_tables && !pruned.months.is_empty() {
        text.push_str("\nDetached tables, to be archived or dropped: ");
        text.push_str(&detached(pruned).join(", "));
    }
    text
}

fn detached(pruned: &Pruned) -> Vec<String> {
    let months = pruned.months.iter();
    let tables = months.map(|month| format!("calls_{}", month.replace('-', "_")));
    tables.collect()
}

fn as_json(pruned: &Pruned, before: Month, keep_tables: bool) -> Value {
    let detached = if keep_tables {
        detached(pruned)
    } else {
        Vec::new()
    };
    json!({
        "before": before.first_day(), "calls": pruned.calls, "entries": pruned.entries,
        "detached_tables": detached,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_months_before_the_date_are_removed() {
        let present = Month::of_day("2026-11-18").unwrap();
        let cutoff = |date| cutoff(date, present).map(|month| month.to_string());
        assert_eq!(cutoff("2026-10-01").unwrap(), "2026-10");
        assert_eq!(
            cutoff("2026-10-31").unwrap(),
            "2026-10",
            "October is not over by then"
        );
        assert_eq!(cutoff("2026-11-18").unwrap(), "2026-11");
        let error = cutoff("2026-12-01").unwrap_err();
        assert!(error.contains("the latest date is 2026-11-01"), "{error}");
        let error = cutoff("yesterday").unwrap_err();
        assert!(error.contains("write it like 2026-11-01"), "{error}");
    }
}
