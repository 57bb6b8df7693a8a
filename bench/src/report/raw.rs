//! Every value of every round, as JSON for further analysis.

use serde_json::{Map, Value, json};

use super::Report;
use crate::{figures::Metric, rounds::Entry};

pub fn collect(report: &Report) -> Value {
    let machine = report.machine;
    let plan = report.plan;
    let bar = |bar: &crate::bars::Bar| {
        json!({ "promise": bar.promise, "limit": bar.limit, "measured": bar.measured.map(rounded),
            "unit": bar.unit.trim(), "met": bar.is_met() })
    };
    json!({
        "machine": { "processor": machine.processor, "cores": machine.cores, "kernel": machine.kernel,
            "load_before": machine.load },
        "plan": { "rounds": plan.rounds, "seconds": plan.time.as_secs_f64(),
            "plain_connections": plan.plain_connections, "steady_requests_per_second": plan.steady_rate,
            "stream_connections": plan.stream_connections, "paced_connections": plan.paced_connections,
            "pause_ms": plan.pause_ms, "few_streams": plan.few_streams, "many_streams": plan.many_streams },
        "contestants": report.entries.iter().map(contestant).collect::<Vec<_>>(),
        "bars": report.bars.iter().map(bar).collect::<Vec<_>>(),
    })
}

fn contestant(entry: &Entry) -> Value {
    let mut figures = Map::new();
    for metric in Metric::ALL {
        let values = entry.figures.all(metric);
        if !values.is_empty() {
            let values: Vec<f64> = values.iter().copied().map(rounded).collect();
            figures.insert(metric.key().into(), json!(values));
        }
    }
    json!({ "name": entry.contestant.name(), "version": entry.contestant.version(),
        "answers": entry.answers, "figures": figures })
}

/// Rounds to four decimals: the rest is noise.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
