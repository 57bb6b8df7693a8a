//! What is printed: figures on standard output, what is being done on standard error.

use std::{cell::RefCell, fs, path::Path, time::Instant};

pub struct Report {
    started: Instant,
    missed: Vec<String>,
    /// All that was printed.
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

    /// Says what comes next and how long it has taken so far.
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

    /// Whether every bar is met; names those that are not.
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
