//! Exports of a database, while gateways may be using it.
//!
//! A cursor in one read-only transaction: all rows are of one snapshot, as with `pg_dump`.

use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use super::{
    audit,
    schema::{self, Found},
};
use crate::{
    db::postgres::{Address, Connected, Error},
    ledger::export::{
        Column, ExportError, FIND_ACCOUNT, Kind, Selection, Table, TakeRows, Value, only_account,
    },
};

/// Fetches a page of rows.
const FETCH: &str = "FETCH FORWARD 2000 FROM export";

/// Sends the selected rows to `rows`.
pub(crate) async fn export_database(
    address: &Address,
    selection: &Selection,
    rows: &mut dyn TakeRows,
) -> Result<(), ExportError> {
    let failed = |reason: String| ExportError::Store {
        store: address.to_string(),
        reason,
    };
    let broken = |error: Error| failed(error.to_string());
    let connection = address.connect().await.map_err(broken)?;
    match schema::read_version(&connection).await.map_err(broken)? {
        Found::Version(_) => {}
        Found::Nothing => {
            let reason = "it has no tables; is it the database of a gateway?";
            return Err(failed(reason.into()));
        }
        Found::OtherVersion { found, known } => {
            return Err(failed(format!(
                "it was made by another version of tollgate (schema version {found}, this one uses {known})"
            )));
        }
    }
    let begun = connection.batch_execute(audit::BEGIN).await;
    begun.map_err(|error| broken(error.into()))?;
    let account = match &selection.account {
        None => None,
        Some(given) => {
            let found = find_account(&connection, given).await.map_err(broken)?;
            Some(only_account(given, found)?)
        }
    };
    let opened = open_cursor(&connection, selection, account.as_ref()).await;
    opened.map_err(broken)?;
    loop {
        let page = connection.query_typed(FETCH, &[]).await;
        let page = page.map_err(|error| broken(error.into()))?;
        if page.is_empty() {
            break;
        }
        for row in &page {
            let values = values(row, selection.table.columns());
            rows.row(&values.map_err(|error| broken(error.into()))?);
        }
        rows.page_end()?;
    }
    connection
        .batch_execute("COMMIT")
        .await
        .map_err(|error| broken(error.into()))
}

async fn find_account(connection: &Connected, given: &str) -> Result<Vec<String>, Error> {
    let given = [(&given as &(dyn ToSql + Sync), Type::TEXT)];
    let found = connection.query_typed(FIND_ACCOUNT, &given).await?;
    Ok(found.iter().map(|row| row.get(0)).collect())
}

/// Opens the cursor `export`.
async fn open_cursor(
    connection: &Connected,
    selection: &Selection,
    account: Option<&String>,
) -> Result<(), Error> {
    let (from_ms, to_ms) = selection.ms();
    let (first_day, end_day) = selection.days();
    let period: [(&(dyn ToSql + Sync), Type); 2] = match selection.table {
        Table::Calls => [(&from_ms, Type::INT8), (&to_ms, Type::INT8)],
        Table::Ledger => [(&selection.from, Type::INT8), (&selection.to, Type::INT8)],
        Table::Usage => [(&first_day, Type::TEXT), (&end_day, Type::TEXT)],
    };
    let mut parameters = period.to_vec();
    if let Some(account) = account {
        parameters.push((account, Type::TEXT));
    }
    let declare = declare_sql(selection.table, account.is_some());
    connection.execute_typed(&declare, &parameters).await?;
    Ok(())
}

/// The view `ledger` with the period in the terms of an index: the view computes the seconds of a charge.
const LEDGER: &str = "(SELECT seq, account_id, kind, ref, delta_nano_usd, balance_after_nano_usd, at FROM ledger_entries
    UNION ALL
    SELECT entry_seq, account_id, 'charge', id::text, -cost_nano_usd, balance_after_nano_usd, ended_at_ms / 1000
    FROM calls WHERE entry_seq IS NOT NULL AND ended_at_ms >= $1 * 1000 AND ended_at_ms < $2 * 1000
        AND NOT EXISTS (SELECT 1 FROM ledger_entries o
            WHERE o.account_id = calls.account_id AND o.kind = 'opening' AND o.seq >= entry_seq)) AS ledger";

/// In the orders of the embedded ledger, all of which indexes have.
fn declare_sql(table: Table, of_account: bool) -> String {
    let columns = table.select_list();
    let (name, time, order) = match table {
        Table::Calls => ("calls", "ended_at_ms", "ended_at_ms, id"),
        Table::Ledger => (LEDGER, "at", "account_id, seq"),
        Table::Usage => (
            "usage_days",
            "day",
            "account_id, day, model, key_id, project_id",
        ),
    };
    let account = if of_account {
        " AND account_id = $3"
    } else {
        ""
    };
    format!(
        "DECLARE export NO SCROLL CURSOR FOR SELECT {columns} FROM {name}
         WHERE {time} >= $1 AND {time} < $2{account} ORDER BY {order}"
    )
}

fn values<'a>(row: &'a Row, columns: &[Column]) -> Result<Vec<Value<'a>>, tokio_postgres::Error> {
    let columns = columns.iter().enumerate();
    columns
        .map(|(at, column)| {
            let value = match column.kind {
                Kind::Bool => row.try_get::<_, Option<bool>>(at)?.map(Value::Bool),
                Kind::Integer | Kind::Call => {
                    let number = row.try_get::<_, Option<i64>>(at)?;
                    number.map(|number| Value::of_number(number, column.kind))
                }
                Kind::Text | Kind::Json => {
                    let text = row.try_get::<_, Option<&str>>(at)?;
                    text.map(|text| Value::of_text(text, column.kind))
                }
            };
            Ok(value.unwrap_or(Value::Null))
        })
        .collect()
}
