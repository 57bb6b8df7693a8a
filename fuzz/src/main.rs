//! `mutate [SECONDS] [TARGET]…`: runs the fuzzing targets on mutations of their corpus, and prints how often.

use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tollgate::fuzzing::{TARGETS, Until, run};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(60), |text| text.parse::<u32>());
    let Ok(seconds) = seconds else {
        eprintln!("usage: mutate [SECONDS] [TARGET]...");
        return ExitCode::FAILURE;
    };
    let names: Vec<_> = arguments.collect();
    let is_chosen = |name: &str| names.is_empty() || names.iter().any(|chosen| chosen == name);
    let targets: Vec<_> = TARGETS
        .into_iter()
        .filter(|target| is_chosen(target.name))
        .collect();
    let share =
        Duration::from_secs(seconds.into()) / u32::try_from(targets.len().max(1)).unwrap_or(1);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // Another seed each time, so that runs add up; it is printed, so that one can be repeated.
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = std::env::var("TOLLGATE_FUZZ_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| now.map_or(1, |now| now.as_secs()));
    for target in targets {
        match run(target, &root, seed, Until::Elapsed(share)) {
            Ok(report) => println!(
                "{:20} {:>12} executions in {:?}, {} outcomes, seed {seed}",
                target.name, report.executions, share, report.outcomes
            ),
            Err(error) => {
                eprintln!("the corpus of {} cannot be read: {error}", target.name);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
