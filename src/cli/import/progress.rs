//! The progress of an import, in one line of a terminal.

use std::io::{IsTerminal as _, Write as _, stderr};

/// Writes to standard error, and nothing if that is not a terminal.
pub(super) struct Progress {
    is_shown: bool,
}

impl Progress {
    /// `copied` rows were copied by earlier runs.
    pub(super) fn new(copied: i64) -> Self {
        if copied > 0 {
            eprintln!("continuing an import: {copied} rows are copied already");
        }
        Self {
            is_shown: stderr().is_terminal(),
        }
    }

    pub(super) fn show(&mut self, table: &str, rows: i64, all: i64) {
        if self.is_shown {
            self.write(&format!("{table}: {rows} of {all}"));
        }
    }

    /// Removes the line.
    pub(super) fn clear(&mut self) {
        if self.is_shown {
            self.write("");
        }
    }

    fn write(&mut self, line: &str) {
        // To the beginning of the line, and erase it.
        let mut terminal = stderr();
        let _ = write!(terminal, "\r\x1b[K{line}");
        let _ = terminal.flush();
    }
}
