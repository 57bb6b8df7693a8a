//! The part of stored responses in `tollgate import`.

use std::path::Path;

use super::path_beside;
use crate::db::copy::{Column, Part, Table};

/// The table in the file beside a ledger's database.
pub(crate) fn part(database: &Path) -> Part {
    Part {
        file: path_beside(database),
        tables: &[RESPONSES],
    }
}

const RESPONSES: Table = Table {
    name: "responses",
    key: &["sequence"],
    columns: &[
        Column::int("sequence"),
        Column::text("id"),
        Column::text("account_id"),
        Column::int("stored_ms"),
        Column::bytes("response"),
        Column::bytes("input"),
        Column::bytes("events"),
    ],
    identity: Some("sequence"),
};

#[test]
fn every_column_is_copied() {
    let schema = include_str!("sqlite/schema.sql");
    crate::db::copy::testing::assert_lists_all(&[RESPONSES], schema, &[]);
}
