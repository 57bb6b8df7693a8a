//! Measured values of each contestant: one per round.

use std::collections::BTreeMap;

/// In the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    PlainCpu,
    PlainStoresCpu,
    PlainRate,
    PlainLoadCpu,
    PlainUpstreamCpu,
    SteadyMiddle,
    SteadyWorst,
    StreamCpu,
    StreamStoresCpu,
    StreamRate,
    PacedCpu,
    FirstEvent,
    EventMiddle,
    EventWorst,
    MessagesCpu,
    MessagesStreamCpu,
    MessagesEventMiddle,
    Start,
    Size,
    MemoryIdle,
    MemoryLoaded,
    MemoryFewStreams,
    MemoryManyStreams,
}

/// What a figure is compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// nginx's figure, as a ratio.
    Nginx,
    /// The upstream's figure without a gateway, as a difference.
    Direct,
    /// Another figure of the same contestant, as a ratio.
    Own(Metric),
    Nothing,
}

impl Metric {
    pub const ALL: [Self; 23] = [
        Self::PlainCpu,
        Self::PlainStoresCpu,
        Self::PlainRate,
        Self::PlainLoadCpu,
        Self::PlainUpstreamCpu,
        Self::SteadyMiddle,
        Self::SteadyWorst,
        Self::StreamCpu,
        Self::StreamStoresCpu,
        Self::StreamRate,
        Self::PacedCpu,
        Self::FirstEvent,
        Self::EventMiddle,
        Self::EventWorst,
        Self::MessagesCpu,
        Self::MessagesStreamCpu,
        Self::MessagesEventMiddle,
        Self::Start,
        Self::Size,
        Self::MemoryIdle,
        Self::MemoryLoaded,
        Self::MemoryFewStreams,
        Self::MemoryManyStreams,
    ];

    /// Its key in the JSON.
    pub fn key(self) -> &'static str {
        match self {
            Self::PlainCpu => "plain_cpu_ms_per_1000",
            Self::PlainStoresCpu => "plain_stores_cpu_ms_per_1000",
            Self::PlainRate => "plain_requests_per_second",
            Self::PlainLoadCpu => "plain_load_cpu_ms_per_1000",
            Self::PlainUpstreamCpu => "plain_upstream_cpu_ms_per_1000",
            Self::SteadyMiddle => "steady_p50_ms",
            Self::SteadyWorst => "steady_p99_ms",
            Self::StreamCpu => "stream_cpu_ms_per_1000",
            Self::StreamStoresCpu => "stream_stores_cpu_ms_per_1000",
            Self::StreamRate => "stream_events_per_second",
            Self::PacedCpu => "paced_cpu_ms_per_1000",
            Self::FirstEvent => "paced_first_event_p50_ms",
            Self::EventMiddle => "paced_event_delay_p50_ms",
            Self::EventWorst => "paced_event_delay_p99_ms",
            Self::MessagesCpu => "messages_plain_cpu_ms_per_1000",
            Self::MessagesStreamCpu => "messages_stream_cpu_ms_per_1000",
            Self::MessagesEventMiddle => "messages_paced_event_delay_p50_ms",
            Self::Start => "start_ms",
            Self::Size => "size_mb",
            Self::MemoryIdle => "memory_idle_mb",
            Self::MemoryLoaded => "memory_loaded_mb",
            Self::MemoryFewStreams => "memory_1000_streams_mb",
            Self::MemoryManyStreams => "memory_10000_streams_mb",
        }
    }

    /// Its title in the table.
    pub fn title(self) -> &'static str {
        match self {
            Self::PlainCpu | Self::MessagesCpu => "CPU for 1,000 requests, ms",
            Self::PlainStoresCpu | Self::StreamStoresCpu => "… and of its stores, ms",
            Self::PlainRate => "requests a second",
            Self::PlainLoadCpu => "(CPU of those who ask, ms)",
            Self::PlainUpstreamCpu => "(CPU of the upstream, ms)",
            Self::SteadyMiddle => "latency at a low rate, p50, ms",
            Self::SteadyWorst => "latency at a low rate, p99, ms",
            Self::StreamCpu | Self::MessagesStreamCpu => "CPU for 1,000 streams, ms",
            Self::StreamRate => "events a second",
            Self::PacedCpu => "CPU for 1,000 paced streams, ms",
            Self::FirstEvent => "time to the first event, p50, ms",
            Self::EventMiddle | Self::MessagesEventMiddle => "delay of an event, p50, ms",
            Self::EventWorst => "delay of an event, p99, ms",
            Self::Start => "ready after, ms",
            Self::Size => "size on disk, MB",
            Self::MemoryIdle => "memory idle, MB",
            Self::MemoryLoaded => "memory under load, MB",
            Self::MemoryFewStreams => "memory with 1,000 open streams, MB",
            Self::MemoryManyStreams => "memory with 10,000 open streams, MB",
        }
    }

    /// The heading above it in the table.
    pub fn group(self) -> &'static str {
        match self {
            Self::PlainCpu
            | Self::PlainStoresCpu
            | Self::PlainRate
            | Self::PlainLoadCpu
            | Self::PlainUpstreamCpu
            | Self::SteadyMiddle
            | Self::SteadyWorst => "Whole answers",
            Self::StreamCpu
            | Self::StreamStoresCpu
            | Self::StreamRate
            | Self::PacedCpu
            | Self::FirstEvent
            | Self::EventMiddle
            | Self::EventWorst => "Streams of 64 events",
            Self::MessagesCpu | Self::MessagesStreamCpu | Self::MessagesEventMiddle => {
                "The same by Anthropic's Messages API, relative to the chat calls above"
            }
            _ => "Size",
        }
    }

    pub fn baseline(self) -> Baseline {
        match self {
            Self::SteadyMiddle
            | Self::SteadyWorst
            | Self::FirstEvent
            | Self::EventMiddle
            | Self::EventWorst => Baseline::Direct,
            Self::MessagesCpu => Baseline::Own(Self::PlainCpu),
            Self::MessagesStreamCpu => Baseline::Own(Self::StreamCpu),
            Self::MessagesEventMiddle => Baseline::Own(Self::EventMiddle),
            Self::PlainStoresCpu
            | Self::StreamStoresCpu
            | Self::PlainLoadCpu
            | Self::PlainUpstreamCpu => Baseline::Nothing,
            _ => Baseline::Nginx,
        }
    }
}

/// The figures of one contestant.
#[derive(Default)]
pub struct Figures {
    values: BTreeMap<Metric, Vec<f64>>,
}

impl Figures {
    pub fn add(&mut self, metric: Metric, value: f64) {
        self.values.entry(metric).or_default().push(value);
    }

    pub fn all(&self, metric: Metric) -> &[f64] {
        self.values.get(&metric).map_or(&[], Vec::as_slice)
    }

    /// Median, minimum and maximum of the rounds.
    pub fn summary(&self, metric: Metric) -> Option<Summary> {
        let mut sorted = self.all(metric).to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let (low, high) = ((sorted.len() - 1) / 2, sorted.len() / 2);
        let middle = f64::midpoint(sorted[low], sorted[high]);
        Some(Summary {
            middle,
            least,
            most,
        })
    }

    pub fn middle(&self, metric: Metric) -> Option<f64> {
        self.summary(metric).map(|summary| summary.middle)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub middle: f64,
    pub least: f64,
    pub most: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_two() {
        let mut figures = Figures::default();
        for value in [4.0, 1.0, 3.0, 2.0] {
            figures.add(Metric::Size, value);
        }
        let summary = figures.summary(Metric::Size).unwrap();
        assert_eq!(
            (summary.least, summary.middle, summary.most),
            (1.0, 2.5, 4.0)
        );
        assert!(figures.summary(Metric::Start).is_none());
    }
}
