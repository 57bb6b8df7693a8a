//! Runs a target on its corpus and on mutations of it, by a seed, so that a run can be repeated.

use std::{
    collections::HashSet,
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    time::{Duration, Instant},
};

use super::Target;
use crate::base::mutation::Random;

/// Largest input: enough for the limits of heads.
const MAX_INPUT_BYTES: usize = 160 << 10;
/// Most inputs that are kept because they showed something new.
const MAX_KEPT: usize = 4_096;

/// When a run ends. The corpus is always run whole.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this many executions.
    Executions(u64),
    /// After this time.
    Elapsed(Duration),
}

/// What a run did.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    pub executions: u64,
    /// Files of the corpus.
    pub corpus: usize,
    /// Different outcomes that were seen.
    pub outcomes: usize,
}

/// Runs a target on its corpus in the repository at `root`.
///
/// Panics, after printing the input, if the target does. Fails if the corpus cannot be read.
pub fn run(target: Target, root: &Path, seed: u64, until: Until) -> io::Result<Report> {
    let mut inputs = corpus(&root.join("fuzz/corpus").join(target.name))?;
    for folder in target.fixtures {
        inputs.extend(corpus(&root.join(folder))?);
    }
    let corpus = inputs.len();
    let mut outcomes = HashSet::new();
    for input in &inputs {
        outcomes.insert(checked(target, input));
    }
    let mut executions = corpus as u64;
    let (started, mut random) = (Instant::now(), Random::new(seed));
    while !is_over(until, executions, started) {
        let mut input = random.pick(&inputs).clone();
        random.mutate(&mut input, target.dictionary, &inputs);
        input.truncate(MAX_INPUT_BYTES);
        let is_new = outcomes.insert(checked(target, &input));
        if is_new && inputs.len() < MAX_KEPT {
            inputs.push(input);
        }
        executions += 1;
    }
    Ok(Report {
        executions,
        corpus,
        outcomes: outcomes.len(),
    })
}

fn is_over(until: Until, executions: u64, started: Instant) -> bool {
    match until {
        Until::Executions(most) => executions >= most,
        Until::Elapsed(longest) => executions.is_multiple_of(64) && started.elapsed() >= longest,
    }
}

/// The inputs of a folder, in the order of their names, without snapshots.
fn corpus(folder: &Path) -> io::Result<Vec<Vec<u8>>> {
    let files = fs::read_dir(folder)?.map(|file| file.map(|file| file.path()));
    let mut files: Vec<_> = files.collect::<io::Result<_>>()?;
    files.retain(|file| file.extension().is_none_or(|kind| kind != "snap"));
    files.sort();
    files.into_iter().map(fs::read).collect()
}

fn checked(target: Target, input: &[u8]) -> u64 {
    let check = AssertUnwindSafe(|| (target.check)(input));
    catch_unwind(check).unwrap_or_else(|panic| {
        eprintln!(
            "{target:?} fails with this input:\n{}",
            input.escape_ascii()
        );
        resume_unwind(panic)
    })
}
