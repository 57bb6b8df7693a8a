//! The report of a run: a table, its figures, and a chart.

mod plot;
mod raw;
mod table;

use std::{fs, path::Path};

use crate::{Done, bars::Bar, figures::Figures, machine::Machine, rounds::Entry, run::Plan};

pub struct Report<'a> {
    pub plan: &'a Plan,
    pub machine: &'a Machine,
    pub entries: &'a [Entry],
    pub bars: &'a [Bar],
}

impl Report<'_> {
    fn figures(&self, name: &str) -> Option<&Figures> {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.contestant.name() == name)?;
        Some(&entry.figures)
    }
}

pub fn write(report: &Report, folder: &Path) -> Done {
    fs::create_dir_all(folder)?;
    let table = table::draw(report);
    print!("{table}");
    fs::write(folder.join("table.md"), table)?;
    let raw = serde_json::to_string_pretty(&raw::collect(report))?;
    fs::write(folder.join("figures.json"), raw + "\n")?;
    fs::write(folder.join("plot.svg"), plot::draw(report))?;
    eprintln!(
        "bench: table.md, figures.json and plot.svg are in {}",
        folder.display()
    );
    Ok(())
}

/// With three significant digits, or all digits of large numbers.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1_000.0 => with_commas(value.round() as i64),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

pub fn with_commas(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::from(if value < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_all_of_them() {
        let cases = [
            (0.123_4, "0.123"),
            (-0.5, "-0.500"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1_234.4, "1,234"),
            (-1_234_567.0, "-1,234,567"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }
}
