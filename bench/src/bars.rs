//! The limits that the gateway promises to stay below.

use crate::{
    contestants::Durability,
    figures::{Figures, Metric},
    report::with_commas,
    rounds::Entry,
    run::Plan,
};

pub struct Bar {
    pub promise: String,
    pub limit: f64,
    /// `None` if it was not measured.
    pub measured: Option<f64>,
    pub unit: &'static str,
}

impl Bar {
    pub fn is_met(&self) -> Option<bool> {
        self.measured.map(|measured| measured <= self.limit)
    }
}

/// The latency that the gateway may add to nginx's, in milliseconds.
const ADDED: f64 = 0.3;

/// Medians of delays differ by this much between two measurements of the same thing, in milliseconds.
const RESOLUTION: f64 = 0.01;

pub fn all(entries: &[Entry], plan: &Plan, flush_ms: Option<f64>) -> Vec<Bar> {
    let (power, process) = (Durability::Power.name(), Durability::Process.name());
    let nginx = figures(entries, "nginx");
    let ratio = |metric| {
        let gateway = figures(entries, power)?.middle(metric)?;
        Some(gateway / nginx?.middle(metric)?)
    };
    let over = |name, metric| {
        let gateway = figures(entries, name)?.middle(metric)?;
        Some(gateway - nginx?.middle(metric)?)
    };
    let value = |metric| figures(entries, power)?.middle(metric);
    let own_ratio = |one, other| Some(value(one)? / value(other)?);
    let bar = |promise: &str, limit, measured, unit| Bar {
        promise: promise.into(),
        limit,
        measured,
        unit,
    };
    vec![
        bar(
            "CPU for a whole answer, beside nginx's",
            3.0,
            ratio(Metric::PlainCpu),
            "×",
        ),
        bar(
            "CPU for a stream of 64 events, beside nginx's",
            4.0,
            ratio(Metric::StreamCpu),
            "×",
        ),
        bar(
            "latency at a low rate over nginx's, p50, `durability = \"process\"`",
            ADDED,
            over(process, Metric::SteadyMiddle),
            " ms",
        ),
        Bar {
            promise: format!(
                "the same by default: that and one flush of the disk, which takes {:.3} ms",
                flush_ms.unwrap_or_default()
            ),
            limit: ADDED + flush_ms.unwrap_or_default(),
            measured: over(power, Metric::SteadyMiddle),
            unit: " ms",
        },
        Bar {
            promise: streams_promise(plan),
            limit: 250.0,
            measured: many_streams(figures(entries, power), plan),
            unit: " MB",
        },
        bar(
            "CPU for a whole answer by the Messages API, beside chat's",
            1.15,
            own_ratio(Metric::MessagesCpu, Metric::PlainCpu),
            "×",
        ),
        bar(
            "CPU for a stream of 64 events by the Messages API, beside chat's",
            1.15,
            own_ratio(Metric::MessagesStreamCpu, Metric::StreamCpu),
            "×",
        ),
        bar(
            "delay of an event by the Messages API over chat's, p50",
            RESOLUTION,
            value(Metric::MessagesEventMiddle)
                .zip(value(Metric::EventMiddle))
                .map(|(messages, chat)| messages - chat),
            " ms",
        ),
        bar("memory idle", 25.0, value(Metric::MemoryIdle), " MB"),
        bar(
            "ready with an existing store",
            300.0,
            value(Metric::Start),
            " ms",
        ),
    ]
}

const STREAMS: f64 = 10_000.0;

fn streams_promise(plan: &Plan) -> String {
    let open = plan.many_streams;
    if open == 0 || open as f64 >= STREAMS {
        return "memory with 10,000 open streams".into();
    }
    // A machine may not allow as many open files as ten thousand streams need.
    format!(
        "memory with 10,000 open streams, reckoned from {}",
        with_commas(open as i64)
    )
}

fn many_streams(figures: Option<&Figures>, plan: &Plan) -> Option<f64> {
    let (figures, open) = (figures?, plan.many_streams as f64);
    let idle = figures.middle(Metric::MemoryIdle)?;
    let measured = figures.middle(Metric::MemoryManyStreams)?;
    Some(idle + (measured - idle) * STREAMS / open)
}

fn figures<'a>(entries: &'a [Entry], name: &str) -> Option<&'a Figures> {
    let mut entries = entries.iter();
    let entry = entries.find(|entry| entry.contestant.name() == name)?;
    Some(&entry.figures)
}
