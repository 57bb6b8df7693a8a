//! Measures the time of scoring, and checks that all threads compute the same scores.

use std::{hint::black_box, thread};

use rustix::time::{ClockId, clock_gettime};

use crate::{
    report::Report,
    scorer::{Scorer, Weights},
};

/// Prompts up to this size have the tighter bar.
const USUAL: usize = 4 << 10;
const RUNS: usize = 3;
const LONG: usize = 100 << 10;

/// The CPU time of this thread in microseconds. Unlike wall-clock time it does not include other processes.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Quantiles over the prompts of the shortest of a few runs each: on shared processors, other processes slow down a run
/// even in CPU time.
fn times(scorer: &Scorer, prompts: &[&str]) -> [f64; 4] {
    let mut times = vec![f64::MAX; prompts.len()];
    for _ in 0..RUNS {
        for (least, prompt) in times.iter_mut().zip(prompts) {
            let before = cpu_time();
            black_box(scorer.score(black_box(prompt)));
            *least = least.min(cpu_time() - before);
        }
    }
    times.sort_by(f64::total_cmp);
    [0.5, 0.9, 0.99, 0.999].map(|share| times[((times.len() - 1) as f64 * share) as usize])
}

pub fn run(prompts: &[&str], weights: &Weights, report: &mut Report) {
    let scorer = Scorer::read(&weights.encode()).expect("weights of our own");
    report.begin("time of the processor");
    report.line(&format!(
        "Time of the processor to score a prompt, one thread, least of {RUNS} runs, in microseconds"
    ));
    report.line("  prompts                p50    p90    p99   p99.9");
    let usual: Vec<&str> = prompts
        .iter()
        .copied()
        .filter(|p| p.len() <= USUAL)
        .collect();
    let mut joined = vec![String::new()];
    for prompt in prompts {
        if joined[joined.len() - 1].len() >= LONG {
            joined.push(String::new());
        }
        let last = joined.len() - 1;
        joined[last].push_str(prompt);
        joined[last].push_str("\n\n");
    }
    let long: Vec<&str> = joined
        .iter()
        .map(String::as_str)
        .filter(|p| p.len() >= LONG)
        .collect();
    for (name, prompts, bar) in [("up to 4 KB", usual, 60.0), ("of 100 KB", long, 200.0)] {
        if prompts.is_empty() {
            report.line(&format!("  there are no prompts {name}"));
            continue;
        }
        let [p50, p90, p99, p999] = times(&scorer, &prompts);
        report.line(&format!(
            "  {:5} {name:10} {p50:9.1} {p90:6.1} {p99:6.1} {p999:7.1}",
            prompts.len()
        ));
        report.at_most(&format!("99 of 100 prompts {name}"), p99, bar);
    }
    report.begin("every score twice");
    let score = || -> Vec<_> { prompts.iter().map(|prompt| bits(&scorer, prompt)).collect() };
    let (here, there) = thread::scope(|scope| {
        let there = scope.spawn(score);
        (score(), there.join().expect("the thread does not panic"))
    });
    let same = here.iter().zip(&there).filter(|(a, b)| a == b).count();
    report.bar(
        "the same bits on two threads, share of prompts 1",
        same as f64 / here.len().max(1) as f64,
        same == here.len(),
    );
}

fn bits(scorer: &Scorer, prompt: &str) -> Vec<u32> {
    let (scores, embedding) = scorer.score_with_embedding(prompt);
    let all = scores.quality.iter().chain(&scores.domains);
    all.chain(embedding.numbers())
        .map(|n| n.to_bits())
        .collect()
}
