//! What commands print: as text, or as JSON with `--json`.
//!
//! A reader that has seen enough and closed the pipe, such as `head`, ends nothing and is no error. Output that cannot be
//! written for another reason, such as a full disk, fails the command.

use std::io::{self, ErrorKind, Write};

use clap::Args;
use serde_json::Value;

#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct OutputOption {
    /// Print the result as JSON
    #[arg(long, global = true)]
    pub json: bool,
}

impl OutputOption {
    /// Prints a result, in one form or the other.
    pub(crate) fn print(self, text: impl FnOnce() -> String, json: &Value) -> Result<(), String> {
        if self.json {
            print(&json.to_string())
        } else {
            print(&text())
        }
    }

    /// Prints a sentence about the result that was printed, for people alone.
    pub(crate) fn remark(self, text: &str) -> Result<(), String> {
        if self.json { Ok(()) } else { print(text) }
    }
}

/// Prints a line, or several.
pub(crate) fn print(text: &str) -> Result<(), String> {
    written(write_line(io::stdout(), text))
}

/// What a write to standard output means for the command.
pub(crate) fn written(result: io::Result<()>) -> Result<(), String> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(format!("standard output cannot be written: {error}")),
        Ok(()) => Ok(()),
    }
}

/// Prints what cannot be had a second time, such as a key: a closed pipe is an error here. It is not repeated on standard
/// error, which often ends up in a log.
pub(crate) fn print_secret(text: &str) -> Result<(), String> {
    let written = write_line(io::stdout(), text);
    written.map_err(|error| format!("standard output cannot be written: {error}"))
}

/// Prints a message to people, who may have gone.
pub(crate) fn tell(message: &str) {
    let _ = write_line(io::stderr(), message);
}

fn write_line(mut to: impl Write, text: &str) -> io::Result<()> {
    writeln!(to, "{text}")?;
    to.flush()
}
