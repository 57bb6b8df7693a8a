//! The report: figures go to standard output, progress to standard error.

use std::{cell::RefCell, fs, path::Path, time::Instant};

pub struct Report {
    started: Instant,
    missed: Vec<String>,
    /// All lines printed to standard output.
    text: RefCell<String>,
}

impl Report {
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            missed: Vec::new(),
            text: RefCell::default(),
        }
    }

    /// Prints the next step and the time elapsed.
    pub fn begin(&self, part: &str) {
        eprintln!("[{:6.1} s] {part}", self.started.elapsed().as_secs_f64());
    }

    pub fn line(&self, line: &str) {
        println!("{line}");
        let mut text = self.text.borrow_mut();
        text.push_str(line);
        text.push('\n');
    }

    pub fn write(&self, path: &Path) -> Result<(), String> {
        let written = fs::write(path, &*self.text.borrow());
        written.map_err(|e| format!("{}: {e}", path.display()))
    }

    pub fn at_least(&mut self, what: &str, value: f64, bar: f64) {
        self.bar(&format!("{what} at least {bar}"), value, value >= bar);
    }

    pub fn at_most(&mut self, what: &str, value: f64, bar: f64) {
        self.bar(&format!("{what} at most {bar}"), value, value <= bar);
    }

    pub fn bar(&mut self, what: &str, value: f64, met: bool) {
        let verdict = if met { "PASS" } else { "MISS" };
        self.line(&format!("  {verdict}  {what}: {value:.3}"));
        if !met {
            self.missed.push(what.into());
        }
    }

    /// Prints the bars that are missed. Returns whether every bar is met.
    pub fn end(&self) -> bool {
        self.begin("done");
        if self.missed.is_empty() {
            self.line("every bar is met");
        } else {
            self.line(&format!("missed: {}", self.missed.join("; ")));
        }
        self.missed.is_empty()
    }
}
