//! Benchmark of scoring a prompt: `cargo bench --bench scorer`.
//!
//! On a busy machine times are inexact, but instruction counts are exact. To count instructions by function:
//!
//! ```sh
//! cargo bench --bench scorer --no-run    # prints the path of the program
//! valgrind --tool=callgrind --callgrind-out-file=scorer.out PROGRAM --test
//! callgrind_annotate --inclusive=yes scorer.out
//! ```

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};
use tollgate::routing::scorer::Scorer;

/// The time of a clock in nanoseconds.
fn now(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// A part of the text that starts at a different position in each round, so that prompts differ.
fn prompt(text: &str, round: usize, size: usize) -> &str {
    let start = text.floor_char_boundary(round * 97 % (text.len() - size));
    &text[start..text.floor_char_boundary(start + size)]
}

fn main() {
    // `cargo test --benches` only checks that the benchmark runs.
    let quick = std::env::args().any(|argument| argument == "--test");
    let rounds = if quick { 20 } else { 20_000 };
    let started = now(ClockId::Monotonic);
    let scorer = Scorer::embedded();
    let took = now(ClockId::Monotonic) - started;
    println!("scorer: weights read in {} µs", took / 1000);
    let english = concat!(
        include_str!("../docs/ARCHITECTURE.md"),
        include_str!("../docs/BILLING.md"),
        include_str!("../docs/PROVIDERS.md"),
        include_str!("../docs/API.md"),
    )
    .repeat(3);
    let russian = "Объясните, почему небо голубое — и докажите, что √2 ∉ ℚ. ".repeat(2_000);
    // Wall-clock time includes the effect of other processes; CPU time does not.
    println!("                     wall clock             CPU time");
    println!("                      p50       p99          p50       p99  ns");
    for (language, text) in [("English", &english), ("Russian", &russian)] {
        for (name, size) in [
            ("256 B", 256),
            ("1 KB", 1 << 10),
            ("4 KB", 4 << 10),
            ("8 KB", 8 << 10),
            ("100 KB", 100 << 10),
        ] {
            let [wall, cpu] = [ClockId::Monotonic, ClockId::ThreadCPUTime].map(|clock| {
                let mut times: Vec<i64> = (0..rounds)
                    .map(|round| {
                        let prompt = prompt(text, round, size);
                        let started = now(clock);
                        black_box(scorer.score(black_box(prompt)));
                        now(clock) - started
                    })
                    .collect();
                times.sort_unstable();
                [50, 99].map(|share| times[(times.len() - 1) * share / 100])
            });
            println!(
                "  {language} {name:6} {:9} {:9}    {:9} {:9}",
                wall[0], wall[1], cpu[0], cpu[1]
            );
        }
    }
}
