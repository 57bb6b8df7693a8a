//! Calls of earlier versions, which were a row each, and a line of the books each, put into rows of many.

use rusqlite::{Connection, Row, params};

use super::{
    gathered::Gathered,
    record::{self, More, Paid, Record},
    unreadable,
};

/// So many bytes are gathered before they are entered.
const AT_ONCE: usize = 8 << 20;

/// The columns of a call, as it was.
pub const COLUMNS: &str =
    "calls.id, request_id, calls.account_id, key_id, model, routed_model, upstream, stream,
    outcome, failure, reserved_tokens, held, most, input_price, cached_price, output_price,
    admitted_ms, first_byte_ms, ended_ms, prompt, cached, completion, reasoning, cost,
    calls.balance_before, calls.balance_after, attempts, steps, decision";

/// A line says what its call came to. One that does not stays a line, for which an audit finds no call.
const IS_LINE_OF: &str = "calls.id = CAST(line.ref AS INTEGER) AND line.kind = 'charge'
    AND calls.account_id = line.account_id AND calls.balance_after = line.balance_after
    AND calls.balance_after - calls.balance_before = line.delta";

/// Within the transaction in which the tables were made.
pub fn put_rows_into_blocks(connection: &Connection) -> rusqlite::Result<()> {
    let count = |table| {
        let query = format!("SELECT count(*) FROM {table}");
        connection.query_row(&query, [], |row| row.get::<_, i64>(0))
    };
    let calls = count("calls")?;
    if calls > 0 {
        tracing::info!(
            calls,
            "the ledger is brought up to date, which takes some seconds for a million calls"
        );
    }
    let mut into = Into {
        connection,
        gathered: Gathered::default(),
        bytes: Vec::new(),
        gathered_bytes: 0,
    };
    let last_line = into.put_charges()?;
    let last = into.put_others(last_line)?;
    into.enter()?;
    connection.execute_batch(&format!(
        "DELETE FROM ledger_entries WHERE seq IN (
             SELECT line.seq FROM ledger_entries AS line JOIN calls ON {IS_LINE_OF}
         );
         DROP TABLE calls"
    ))?;
    frame_anew(connection, last)
}

struct Into<'a> {
    connection: &'a Connection,
    gathered: Gathered,
    bytes: Vec<u8>,
    gathered_bytes: usize,
}

impl Into<'_> {
    /// Calls that were charged, in the order of the books and by their numbers there. Says which was the last.
    fn put_charges(&mut self) -> rusqlite::Result<i64> {
        let mut last = 0;
        let mut lines = self.connection.prepare(&format!(
            "SELECT {COLUMNS}, line.seq, line.account_id
             FROM ledger_entries AS line LEFT JOIN calls ON {IS_LINE_OF} ORDER BY line.seq"
        ))?;
        let mut lines = lines.query([])?;
        while let Some(line) = lines.next()? {
            last = line.get(29)?;
            if line.get::<_, Option<i64>>(0)?.is_some() {
                self.put(last, &read(line)?)?;
            } else {
                // A line that stays one: what comes after it is in another row.
                self.gathered.close(line.get_ref(30)?.as_str()?);
            }
        }
        Ok(last)
    }

    /// All others, numbered after the last line of the books.
    fn put_others(&mut self, last_line: i64) -> rusqlite::Result<i64> {
        self.enter()?;
        let mut seq = last_line;
        let mut rows = self.connection.prepare(&format!(
            "SELECT {COLUMNS} FROM calls WHERE cost IS NULL OR id NOT IN (
                 SELECT calls.id FROM ledger_entries AS line JOIN calls ON {IS_LINE_OF}
             ) ORDER BY id"
        ))?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            seq += 1;
            self.put(seq, &read(row)?)?;
        }
        Ok(seq)
    }

    fn put(&mut self, seq: i64, record: &Record<'_>) -> rusqlite::Result<()> {
        self.bytes.clear();
        record.write(&mut self.bytes, seq)?;
        self.gathered.add(seq, record, &self.bytes);
        self.gathered_bytes += self.bytes.len();
        if self.gathered_bytes > AT_ONCE {
            self.enter()?;
        }
        Ok(())
    }

    fn enter(&mut self) -> rusqlite::Result<()> {
        self.gathered.enter_calls(self.connection)?;
        self.gathered = Gathered::default();
        self.gathered_bytes = 0;
        Ok(())
    }
}

/// What was not entered had its length before it, and nothing else.
fn frame_anew(connection: &Connection, last_seq: i64) -> rusqlite::Result<()> {
    let (mut seq, mut framed) = (last_seq, Vec::new());
    let mut values = connection.prepare("SELECT records FROM new_calls ORDER BY seq")?;
    let mut values = values.query([])?;
    while let Some(value) = values.next()? {
        let mut rest = value.get_ref(0)?.as_blob()?;
        while !rest.is_empty() {
            let cut = rest.split_first_chunk::<4>().and_then(|(length, rest)| {
                let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
                rest.split_at_checked(length)
            });
            let (bytes, later) = cut.ok_or_else(|| unreadable(0, "the length of a call"))?;
            rest = later;
            seq += 1;
            record::read(bytes)?.write(&mut framed, seq)?;
        }
    }
    connection.execute("DELETE FROM new_calls", [])?;
    if !framed.is_empty() {
        connection.execute(
            "INSERT INTO new_calls VALUES (?1, ?2)",
            params![seq, framed],
        )?;
    }
    Ok(())
}

fn read<'a>(row: &'a Row<'_>) -> rusqlite::Result<Record<'a>> {
    let text = |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_str()?);
    let maybe = |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_str_or_null()?);
    let paid = match row.get::<_, Option<i64>>(23)? {
        None => None,
        Some(cost) => Some(Paid {
            prompt: row.get(19)?,
            cached: row.get(20)?,
            completion: row.get(21)?,
            reasoning: row.get(22)?,
            cost,
            before: row.get(24)?,
            after: row.get(25)?,
        }),
    };
    Ok(Record {
        id: row.get(0)?,
        request_id: text(1)?,
        account_id: text(2)?,
        key_id: text(3)?,
        model: text(4)?,
        routed_model: text(5)?,
        upstream: maybe(6)?,
        stream: row.get(7)?,
        outcome: text(8)?,
        failure: maybe(9)?,
        reserved_tokens: row.get(10)?,
        held: row.get(11)?,
        most: row.get(12)?,
        input_price: row.get(13)?,
        cached_price: row.get(14)?,
        output_price: row.get(15)?,
        admitted_ms: row.get(16)?,
        first_byte_ms: row.get(17)?,
        ended_ms: row.get(18)?,
        paid,
        attempts: maybe(26)?.unwrap_or_default(),
        steps: maybe(27)?.unwrap_or_default(),
        decision: maybe(28)?,
        left: Vec::new(),
        debt: None,
        more: More::default(),
    })
}
