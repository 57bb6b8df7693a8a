//! Runs every target for a moment, or for `TOLLGATE_FUZZ_SECONDS` in all.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::*;

/// Executions of each target: together about two seconds, unoptimised.
const EXECUTIONS: u64 = 1_500;

/// Seed and length of a run: the same mutations each time, or as many others as fit into the time.
fn plan() -> (u64, Until) {
    let seconds = std::env::var("TOLLGATE_FUZZ_SECONDS").ok();
    let Some(seconds) = seconds.and_then(|seconds| seconds.parse::<u32>().ok()) else {
        return (1, Until::Executions(EXECUTIONS));
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let share = Duration::from_secs(seconds.into()) / u32::try_from(TARGETS.len()).unwrap();
    (now.as_secs(), Until::Elapsed(share))
}

#[test]
fn every_target_holds_for_its_corpus_and_mutations_of_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (seed, until) = plan();
    for target in TARGETS {
        let report = run(target, root, seed, until).unwrap();
        println!("{target:?}: {report:?}, seed {seed}");
        assert!(report.corpus >= 5, "{target:?} has hardly a corpus");
        assert!(report.outcomes >= 5, "{target:?} tells nothing apart");
    }
}

/// A target that misses what it is for would pass every run.
#[test]
fn a_property_that_does_not_hold_is_found() {
    let wrong = Target {
        check: |bytes| {
            assert!(!bytes.windows(2).any(|two| two == b"\n5"), "found");
            0
        },
        ..TARGETS[2]
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = std::panic::catch_unwind(|| run(wrong, root, 1, Until::Executions(EXECUTIONS)));
    assert!(found.is_err());
}
