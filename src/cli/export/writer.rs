//! Writes rows in a format to an output.

use std::io::{self, IsTerminal as _};

use super::{Format, Output};
use crate::{
    cli::progress::Progress,
    ledger::export::{Column, TakeRows, Value},
};

/// The size of a write: accounts with few rows are collected.
const CHUNK: usize = 64 << 10;

pub(crate) struct RowWriter {
    columns: &'static [Column],
    format: Format,
    output: Output,
    /// What is not written yet.
    buffer: Vec<u8>,
    rows: u64,
    progress: Progress,
}

impl RowWriter {
    pub(crate) fn new(columns: &'static [Column], format: Format, output: Output) -> Self {
        let mut progress = Progress::new("rows", None);
        if matches!(output, Output::Stdout) && io::stdout().is_terminal() {
            progress = progress.hide();
        }
        let mut buffer = Vec::with_capacity(2 * CHUNK);
        format.write_header(columns, &mut buffer);
        Self {
            columns,
            format,
            output,
            buffer,
            rows: 0,
            progress,
        }
    }

    /// Writes the rest. Returns the number of rows.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        self.write()?;
        self.output.finish()?;
        Ok(self.rows)
    }

    fn write(&mut self) -> io::Result<()> {
        self.output.write(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

impl TakeRows for RowWriter {
    fn row(&mut self, values: &[Value<'_>]) {
        self.format
            .write_row(self.columns, values, &mut self.buffer);
        self.rows += 1;
    }

    fn page_end(&mut self) -> io::Result<()> {
        self.progress.set(self.rows);
        if self.buffer.len() < CHUNK {
            return Ok(());
        }
        self.write()
    }
}
