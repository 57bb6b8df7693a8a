//! The chart: a panel for each figure that has a promised limit, with a bar for each contestant.

use std::fmt::Write as _;

use super::{Report, number};
use crate::figures::Metric;

const PANELS: [(Metric, &str); 6] = [
    (Metric::PlainCpu, "CPU for 1,000 whole answers, ms"),
    (Metric::StreamCpu, "CPU for 1,000 streams of 64 events, ms"),
    (Metric::SteadyMiddle, "Latency at a low rate, p50, ms"),
    (Metric::EventMiddle, "Delay of an event, p50, ms"),
    (Metric::MemoryIdle, "Memory idle, MB"),
    (
        Metric::MemoryFewStreams,
        "Memory with 1,000 open streams, MB",
    ),
];

const WIDTH: f64 = 860.0;
const LABELS: f64 = 200.0;
const VALUES: f64 = 130.0;
const ROW: f64 = 22.0;
const HEADING: f64 = 40.0;

pub fn draw(report: &Report) -> String {
    let mut panels = String::new();
    let mut top = 16.0;
    for (metric, title) in PANELS {
        top = panel(&mut panels, report, metric, title, top);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" width=\"{WIDTH}\" height=\"{top}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{panels}</svg>\n"
    )
}

/// Draws a panel below `top` and returns the top of the next one.
fn panel(svg: &mut String, report: &Report, metric: Metric, title: &str, top: f64) -> f64 {
    let values: Vec<(&str, f64)> = report
        .entries
        .iter()
        .filter_map(|entry| Some((entry.contestant.name(), entry.figures.middle(metric)?)))
        .collect();
    let largest = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    if largest <= 0.0 {
        return top;
    }
    let nginx = report
        .figures("nginx")
        .and_then(|figures| figures.middle(metric));
    let _ = writeln!(
        svg,
        "<text x=\"16\" y=\"{}\" font-weight=\"600\" fill=\"#222\">{title}</text>",
        top + 18.0
    );
    let mut y = top + HEADING - 8.0;
    for (name, value) in values {
        let width = (WIDTH - LABELS - VALUES) * value / largest;
        let colour = if name.starts_with("tollgate") {
            "#2f6f8f"
        } else {
            "#a9b4bb"
        };
        let ratio = nginx.filter(|nginx| *nginx > 0.0 && name != "nginx");
        let ratio = ratio.map_or_else(String::new, |nginx| {
            format!(" · {}×", number(value / nginx))
        });
        let (middle, after) = (y + 14.0, LABELS + width + 6.0);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\" fill=\"#444\">{name}</text>\
             <rect x=\"{LABELS}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/>\
             <text x=\"{after:.1}\" y=\"{middle}\" fill=\"#222\">{}{ratio}</text>",
            LABELS - 8.0,
            ROW - 5.0,
            number(value)
        );
        y += ROW;
    }
    y + 14.0
}
