//! The table, in Markdown.

use std::fmt::Write as _;

use super::{Report, number, with_commas};
use crate::{
    bars::Bar,
    figures::{Baseline, Metric, Summary},
    rounds::Entry,
};

pub fn draw(report: &Report) -> String {
    let mut text = String::from("# Tollgate beside a bare proxy\n\n");
    where_and_how(&mut text, report);
    let mut group = "";
    for metric in Metric::ALL {
        if metric.group() != group {
            group = metric.group();
            head(&mut text, report, group);
        }
        row(&mut text, report, metric);
    }
    text.push_str("\n## Bars\n\n| Promise | At most | Measured | |\n|---|---:|---:|---|\n");
    report.bars.iter().for_each(|one| bar(&mut text, one));
    text
}

fn where_and_how(text: &mut String, report: &Report) {
    let (machine, plan) = (report.machine, report.plan);
    let _ = writeln!(
        text,
        "{} ({} cores, Linux {}), load before the start {:.2}; {} rounds of {} s. Everyone shares the cores with \
         those who ask and with the upstream.\n",
        machine.processor,
        machine.cores,
        machine.kernel,
        machine.load,
        plan.rounds,
        plan.time.as_secs()
    );
    for entry in report.entries {
        let (name, version) = (entry.contestant.name(), entry.contestant.version());
        let answers = with_commas(entry.answers.cast_signed());
        let _ = writeln!(text, "- {name}: {version}, {answers} answers");
    }
    text.push_str(
        "\nA cell has the ratio to nginx (latencies: what is added to asking the upstream directly), then the \
         median of the rounds and their range.\n",
    );
}

fn head(text: &mut String, report: &Report, group: &str) {
    let _ = write!(text, "\n## {group}\n\n| |");
    for entry in report.entries {
        let _ = write!(text, " {} |", entry.contestant.name());
    }
    text.push_str("\n|---|");
    report.entries.iter().for_each(|_| text.push_str("---:|"));
    text.push('\n');
}

fn row(text: &mut String, report: &Report, metric: Metric) {
    let measured = |entry: &&Entry| entry.figures.summary(metric).is_some();
    if !report.entries.iter().any(|entry| measured(&entry)) {
        return;
    }
    let mut title = metric.title().to_owned();
    if metric == Metric::MemoryManyStreams {
        let open = with_commas(report.plan.many_streams as i64);
        title = title.replace("10,000", &open);
    }
    let _ = write!(text, "| {title} |");
    for entry in report.entries {
        let summary = entry.figures.summary(metric);
        let cell = summary.map_or_else(
            || "–".into(),
            |summary| cell(report, entry, metric, summary),
        );
        let _ = write!(text, " {cell} |");
    }
    text.push('\n');
}

fn cell(report: &Report, entry: &Entry, metric: Metric, summary: Summary) -> String {
    let absolute = number(summary.middle);
    let absolute = if (summary.most - summary.least).abs() < f64::EPSILON {
        absolute
    } else {
        format!(
            "{absolute} ({}–{})",
            number(summary.least),
            number(summary.most)
        )
    };
    let other = |name| report.figures(name)?.middle(metric);
    let is = |name| entry.contestant.name() == name;
    match metric.baseline() {
        Baseline::Nginx if !is("direct") => match other("nginx") {
            Some(nginx) if nginx > 0.0 => {
                format!("**{}×** {absolute}", number(summary.middle / nginx))
            }
            _ => absolute,
        },
        Baseline::Direct if !is("direct") => match other("direct") {
            Some(direct) => format!("**{:+.3}** {absolute}", summary.middle - direct),
            None => absolute,
        },
        Baseline::Own(metric) => match entry.figures.middle(metric) {
            Some(own) if own > 0.0 => format!("**{}×** {absolute}", number(summary.middle / own)),
            _ => absolute,
        },
        _ => absolute,
    }
}

fn bar(text: &mut String, bar: &Bar) {
    let verdict = match bar.is_met() {
        Some(true) => "met",
        Some(false) => "**missed**",
        None => "not measured",
    };
    let measured = bar.measured.map_or_else(
        || "–".into(),
        |measured| format!("{}{}", number(measured), bar.unit),
    );
    let (promise, limit) = (&bar.promise, number(bar.limit));
    let _ = writeln!(
        text,
        "| {promise} | {limit}{} | {measured} | {verdict} |",
        bar.unit
    );
}
