//! Rows of the ledger for other programs, as `tollgate export` writes them.
//!
//! Both stores have the same columns in the same order, so exports of the same traffic are the same. Nothing is locked
//! or changed: gateways go on serving. No row comes twice, and none is missing that was posted before the export began.
//! Rows come in pages, so memory does not grow with their number.

use std::io;

mod columns;

pub(crate) use self::columns::{Column, Kind};
use super::CallId;
use crate::base::timestamp;

/// The last second that a date with four digits can name: later than any row.
const END_OF_TIME: i64 = 253_402_300_799;

/// What can be exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// The table `calls`, by the time of their end.
    Calls,
    /// The view `ledger`, by account.
    Ledger,
    /// The table `usage_days`, by account.
    Usage,
}

impl Table {
    pub(crate) fn columns(self) -> &'static [Column] {
        match self {
            Self::Calls => &columns::CALLS,
            Self::Ledger => &columns::LEDGER,
            Self::Usage => &columns::USAGE,
        }
    }

    /// The columns as a list for `SELECT`.
    pub(super) fn select_list(self) -> String {
        let columns = self.columns().iter().map(|column| column.sql);
        columns.collect::<Vec<_>>().join(", ")
    }
}

/// Which rows are exported.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub table: Table,
    /// The ID or the email of an account; `None` for all accounts.
    pub account: Option<String>,
    /// Seconds since 1970; a call counts when it ends, as in `usage_days` and in the ledger.
    pub from: i64,
    /// The first second after the period.
    pub to: i64,
}

impl Selection {
    /// All rows of all accounts.
    pub(crate) fn all(table: Table) -> Self {
        Self {
            table,
            account: None,
            from: 0,
            to: END_OF_TIME,
        }
    }

    pub(super) fn is_of_all_time(&self) -> bool {
        (self.from, self.to) == (0, END_OF_TIME)
    }

    pub(super) fn ms(&self) -> (i64, i64) {
        (self.from * 1_000, self.to * 1_000)
    }

    /// The first day, and the first day after the period.
    pub(super) fn days(&self) -> (String, String) {
        (timestamp::day(self.from), timestamp::day(self.to))
    }
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Null,
    Integer(i64),
    Bool(bool),
    Text(&'a str),
    Call(CallId),
    Json(serde_json::Value),
}

impl<'a> Value<'a> {
    /// A stored number, as what its column says it is.
    pub(super) fn of_number(number: i64, kind: Kind) -> Self {
        match kind {
            Kind::Bool => Self::Bool(number != 0),
            Kind::Call => Self::Call(CallId(u64::try_from(number).unwrap_or(0))),
            _ => Self::Integer(number),
        }
    }

    /// A stored text, as what its column says it is.
    pub(super) fn of_text(text: &'a str, kind: Kind) -> Self {
        match kind {
            Kind::Json => of_json(text),
            _ => Self::Text(text),
        }
    }
}

/// What PostgreSQL stores with a call to take its charge back and to restore windows. The embedded ledger has no use for
/// it, so it is left out of exports.
const OF_POSTGRES_ALONE: [&str; 2] = ["paid", "reservations"];

/// Keys are sorted, because PostgreSQL does not keep their order.
fn of_json(text: &str) -> Value<'_> {
    let Ok(mut json) = serde_json::from_str::<serde_json::Value>(text) else {
        return Value::Text(text);
    };
    if let Some(fields) = json.as_object_mut() {
        fields.retain(|name, _| !OF_POSTGRES_ALONE.contains(&name.as_str()));
        if fields.is_empty() {
            return Value::Null;
        }
    }
    json.sort_all_objects();
    Value::Json(json)
}

/// Takes the rows of an export.
pub(crate) trait TakeRows {
    /// Takes a row. Must not wait for anything: a snapshot of the store is open meanwhile.
    fn row(&mut self, values: &[Value<'_>]);

    /// Called between pages, when no snapshot of an SQLite file is open: may wait for a slow reader of the rows.
    fn page_end(&mut self) -> io::Result<()>;
}

/// The IDs of the accounts that a selection can mean, at most two of them.
pub(super) const FIND_ACCOUNT: &str =
    "SELECT id FROM accounts WHERE id = $1 OR lower(email) = lower($1) LIMIT 2";

/// The ID of the selected account, of those that [`FIND_ACCOUNT`] has found.
pub(super) fn only_account(given: &str, found: Vec<String>) -> Result<String, ExportError> {
    match <[String; 1]>::try_from(found) {
        Ok([id]) => Ok(id),
        Err(none) if none.is_empty() => Err(ExportError::NoAccount(given.to_owned())),
        Err(_) => Err(ExportError::SeveralAccounts(given.to_owned())),
    }
}

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    #[error("there is no account `{0}`; `tollgate account list` shows them")]
    NoAccount(String),
    #[error("several accounts have the email {0}; name one by its ID")]
    SeveralAccounts(String),
    #[error("{store} cannot be read: {reason}")]
    Store { store: String, reason: String },
    #[error("the rows cannot be written: {0}")]
    Output(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn details_of_both_stores_are_the_same() {
        let of = |text| Value::of_text(text, Kind::Json);
        let embedded = of(r#"{"steps":[{"kind":"tool","ms":0.10}],"attempts":[]}"#);
        let shared = of(
            r#"{"paid": [{"grant_id": "g"}], "steps": [{"ms": 0.1, "kind": "tool"}], "attempts": []}"#,
        );
        assert_eq!(embedded, shared);
        let Value::Json(detail) = shared else {
            panic!("{shared:?}");
        };
        assert_eq!(
            detail.to_string(),
            json!({ "attempts": [], "steps": [{ "kind": "tool", "ms": 0.1 }] }).to_string()
        );
        assert_eq!(of(r#"{"paid": [], "reservations": []}"#), Value::Null);
        assert_eq!(
            of("{"),
            Value::Text("{"),
            "what is stored, if it is not JSON"
        );
    }
}
