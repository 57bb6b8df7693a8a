//! Measurement rounds: all contestants do each kind of work in turn, so that a busy moment of the machine affects
//! all.

use std::time::Duration;

use clap::ValueEnum;
use tokio::runtime::Runtime;

use crate::{
    Done,
    contestants::Contestant,
    cpu,
    figures::{Figures, Metric},
    load::{self, LoadResult, Target, percentile},
    run::Plan,
    upstream::Upstream,
};

/// A contestant and its figures so far.
pub struct Entry {
    pub contestant: Box<dyn Contestant>,
    pub figures: Figures,
    /// Complete responses since its first start.
    pub answers: u64,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Work {
    Plain,
    Steady,
    Stream,
    Paced,
    /// Like `Plain`, by the Messages API.
    Messages,
    /// Like `Stream`, by the Messages API.
    MessagesStream,
    /// Like `Paced`, by the Messages API.
    MessagesPaced,
}

impl Work {
    pub const ALL: [Self; 7] = [
        Self::Plain,
        Self::Steady,
        Self::Stream,
        Self::Paced,
        Self::Messages,
        Self::MessagesStream,
        Self::MessagesPaced,
    ];

    /// Where to send it; `None` if the contestant does not serve this API.
    fn target(self, contestant: &dyn Contestant) -> Option<Target> {
        match self {
            Self::Plain | Self::Steady | Self::Stream | Self::Paced => {
                Some(contestant.target().clone())
            }
            Self::Messages | Self::MessagesStream | Self::MessagesPaced => contestant.messages(),
        }
    }

    fn connections(self, plan: &Plan) -> usize {
        match self {
            Self::Plain | Self::Messages => plan.plain_connections,
            Self::Steady => plan.steady_connections,
            Self::Stream | Self::MessagesStream => plan.stream_connections,
            Self::Paced | Self::MessagesPaced => plan.paced_connections,
        }
    }
}

pub struct Rounds<'a> {
    pub plan: &'a Plan,
    pub runtime: &'a Runtime,
    pub upstream: &'a Upstream,
}

impl Rounds<'_> {
    /// Every contestant does this work once; each round begins with another contestant.
    pub fn once(&self, work: Work, entries: &mut [Entry], round: usize) -> Done {
        let all = entries.len();
        for turn in 0..all {
            let entry = &mut entries[(turn + round) % all];
            let name = entry.contestant.name();
            if let Some(target) = work.target(entry.contestant.as_ref()) {
                self.measure(work, entry, &target)
                    .map_err(|failure| format!("{name}: {failure}"))?;
            }
        }
        Ok(())
    }

    /// Runs the work without measuring: connections are opened, caches filled.
    pub fn warm_up(&self, work: Work, entry: &mut Entry, time: Duration) -> Done {
        if let Some(target) = work.target(entry.contestant.as_ref()) {
            entry.answers += self.ask(work, &target, time)?.answers;
        }
        Ok(())
    }

    fn measure(&self, work: Work, entry: &mut Entry, target: &Target) -> Done {
        // Connections to the upstream that were idle for a round may have been closed.
        self.warm_up(work, entry, self.plan.warm_up)?;
        let before = self.used(entry.contestant.as_ref());
        let mut result = self.ask(work, target, self.plan.time)?;
        let used = self.used(entry.contestant.as_ref()).since(&before);
        entry.answers += result.answers;
        record(work, &mut entry.figures, &mut result, &used);
        Ok(())
    }

    fn ask(&self, work: Work, target: &Target, time: Duration) -> Done<LoadResult> {
        let plan = self.plan;
        self.runtime.block_on(async {
            let connections = target.connect(work.connections(plan)).await?;
            match work {
                Work::Plain | Work::Messages => load::plain::full(target, connections, time).await,
                Work::Steady => {
                    load::plain::steady(target, connections, plan.steady_rate, time).await
                }
                Work::Stream | Work::MessagesStream => {
                    load::stream::full(target, connections, time).await
                }
                Work::Paced | Work::MessagesPaced => {
                    load::stream::paced(target, connections, plan.pause_ms, time).await
                }
            }
        })
    }

    fn used(&self, contestant: &dyn Contestant) -> Usage {
        let of_all = |pids: Vec<u32>| pids.into_iter().map(|pid| cpu::of_family(pid).cpu).sum();
        let itself = contestant.pid().map(cpu::of_family);
        Usage {
            itself: itself.map(|used| used.cpu),
            memory: itself.map_or(0.0, |used| used.memory),
            stores: of_all(contestant.stores()),
            upstream: cpu::of_family(self.upstream.pid()).cpu,
            load: cpu::of_one(std::process::id()),
        }
    }
}

/// CPU seconds of all processes involved in a request.
struct Usage {
    /// `None` if no gateway is in between.
    itself: Option<f64>,
    /// Bytes, at this moment.
    memory: f64,
    stores: f64,
    upstream: f64,
    load: f64,
}

impl Usage {
    fn since(&self, before: &Self) -> Self {
        Self {
            itself: self.itself.zip(before.itself).map(|(now, then)| now - then),
            memory: self.memory,
            stores: self.stores - before.stores,
            upstream: self.upstream - before.upstream,
            load: self.load - before.load,
        }
    }
}

fn record(work: Work, figures: &mut Figures, result: &mut LoadResult, used: &Usage) {
    let answers = result.answers.max(1) as f64;
    let seconds = result.took.as_secs_f64();
    // Milliseconds for a thousand responses equal microseconds for each.
    let each = |cpu: f64| cpu / answers * 1e6;
    let mut add = |metric, value| figures.add(metric, value);
    match work {
        Work::Plain => {
            add(Metric::PlainRate, answers / seconds);
            add(Metric::PlainLoadCpu, each(used.load));
            add(Metric::PlainUpstreamCpu, each(used.upstream));
            if let Some(itself) = used.itself {
                add(Metric::PlainCpu, each(itself));
                add(Metric::MemoryLoaded, used.memory / 1e6);
            }
            if used.stores > 0.0 {
                add(Metric::PlainStoresCpu, each(used.stores));
            }
        }
        Work::Messages => {
            if let Some(itself) = used.itself {
                add(Metric::MessagesCpu, each(itself));
            }
        }
        Work::MessagesStream => {
            if let Some(itself) = used.itself {
                add(Metric::MessagesStreamCpu, each(itself));
            }
        }
        Work::MessagesPaced => add(
            Metric::MessagesEventMiddle,
            percentile(&mut result.delays, 0.5),
        ),
        Work::Steady => {
            add(Metric::SteadyMiddle, percentile(&mut result.waits, 0.5));
            add(Metric::SteadyWorst, percentile(&mut result.waits, 0.99));
        }
        Work::Stream => {
            add(Metric::StreamRate, result.events as f64 / seconds);
            if let Some(itself) = used.itself {
                add(Metric::StreamCpu, each(itself));
                add(Metric::MemoryLoaded, used.memory / 1e6);
            }
            if used.stores > 0.0 {
                add(Metric::StreamStoresCpu, each(used.stores));
            }
        }
        Work::Paced => {
            add(Metric::FirstEvent, percentile(&mut result.waits, 0.5));
            add(Metric::EventMiddle, percentile(&mut result.delays, 0.5));
            add(Metric::EventWorst, percentile(&mut result.delays, 0.99));
            if let Some(itself) = used.itself {
                add(Metric::PacedCpu, each(itself));
            }
        }
    }
}
