//! Usage as CSV (RFC 4180).

use std::fmt::Write as _;

use super::names::Names;
use crate::{ledger::DayUse, portal::csv::field};

const COLUMNS: &str = "day,key name,key prefix,model,requests,charged requests,prompt tokens,\
     cached tokens,completion tokens,reasoning tokens,cost USD,project,member\r\n";

/// A line for each day, key, model and project. New columns are added at the end, for programs that count them.
pub(crate) fn render(rows: &[DayUse], names: &Names) -> String {
    let mut text = String::from(COLUMNS);
    for row in rows {
        let key = names.key(row);
        let name = key.map_or(row.key_id.as_str(), |key| &key.name);
        let prefix = key.map_or("", |key| &key.prefix);
        let _ = write!(
            text,
            "{},{},{},{},{},{},{},{},{},{},{},{},{}\r\n",
            field(&row.day),
            field(name),
            field(prefix),
            field(&row.model),
            row.calls,
            row.charged,
            row.prompt,
            row.cached,
            row.completion,
            row.reasoning,
            row.cost,
            field(names.project(row)),
            field(names.member(row).unwrap_or_default()),
        );
    }
    text
}
