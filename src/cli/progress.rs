//! Progress of a long command, on one line of the terminal that is overwritten.
//!
//! It goes to standard error, and only if that is a terminal: logs and pipes get none of it.

use std::{
    io::{IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

/// How often the line is written.
const INTERVAL: Duration = Duration::from_millis(200);
/// Moves to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

pub(crate) struct Progress {
    is_shown: bool,
    /// What is counted, in the plural, e.g. `calls`.
    unit: &'static str,
    done: u64,
    total: Option<u64>,
    written: Option<Instant>,
}

impl Progress {
    /// Counts `unit`, up to `total` if it is known.
    pub(crate) fn new(unit: &'static str, total: Option<u64>) -> Self {
        Self {
            is_shown: std::io::stderr().is_terminal(),
            unit,
            done: 0,
            total,
            written: None,
        }
    }

    /// Shows nothing, e.g. because the rows themselves go to the terminal.
    pub(crate) fn hide(mut self) -> Self {
        self.is_shown = false;
        self
    }

    pub(crate) fn set(&mut self, done: u64) {
        self.done = done;
        let is_due = self.written.is_none_or(|at| at.elapsed() >= INTERVAL);
        if self.is_shown && is_due {
            self.written = Some(Instant::now());
            let mut terminal = std::io::stderr();
            let line = self.line();
            let _ = write!(terminal, "{CLEAR}{line}").and_then(|()| terminal.flush());
        }
    }

    /// As [`Self::set`], if the total is known only now.
    pub(crate) fn set_of(&mut self, done: u64, total: u64) {
        self.total = Some(total);
        self.set(done);
    }

    fn line(&self) -> String {
        let (done, unit) = (with_commas(self.done), self.unit);
        match self.total {
            Some(total) if total > 0 => {
                let percent = self.done.min(total).saturating_mul(100) / total;
                format!("{done} of {} {unit}, {percent} %", with_commas(total))
            }
            _ => format!("{done} {unit}"),
        }
    }
}

impl Drop for Progress {
    /// Clears the line, so that a message can follow.
    fn drop(&mut self) {
        if self.written.is_some() {
            let _ = write!(std::io::stderr(), "{CLEAR}");
        }
    }
}

/// A number with a comma between thousands.
pub(crate) fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        for (number, shown) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (123_456, "123,456"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(with_commas(number), shown);
        }
    }

    #[test]
    fn a_known_total_has_a_percentage() {
        let mut progress = Progress::new("pages", Some(2_000)).hide();
        progress.set(510);
        assert_eq!(progress.line(), "510 of 2,000 pages, 25 %");
        let mut progress = Progress::new("rows", None).hide();
        progress.set(7_000);
        assert_eq!(progress.line(), "7,000 rows");
        progress.set_of(7_000, 7_000);
        assert_eq!(progress.line(), "7,000 of 7,000 rows, 100 %");
    }
}
