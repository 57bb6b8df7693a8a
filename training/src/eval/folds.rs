//! Cross-validation of the shipped heads: quality tiers, domains, and robustness to changes that do not change the
//! task.

use super::{Evaluation, pairs::print, transfer::RANKINGS};
use crate::{
    changes::{CHANGES, stem},
    data::{Data, mixed},
    heads,
    pair::Case,
    report::Report,
    scorer::{Scorer, Scores, TIERS},
    tiers,
};

/// Difficulties at which the second, third and fourth tier of the built-in tiered hybrid begin.
const CUTS: [f32; 3] = [0.2, 0.3, 0.65];
/// How far below the best the expected quality of a cheaper tier may be, in the rule that measures robustness.
const DELTA: f32 = 0.10;
const PER_BENCH: usize = 700;
const TIERED: [&str; 5] = ["gsm8k", "math-l5", "crux", "mmlupro", "ulab"];

pub fn run(evaluation: &Evaluation, report: &mut Report) {
    let Evaluation {
        data,
        examples,
        copies,
        table,
    } = evaluation;
    let usable = heads::usable(data);
    let mut judged = Vec::new();
    for bench in TIERED {
        let rows = usable
            .iter()
            .copied()
            .filter(|row| data.rows[*row].bench == bench);
        judged.extend(data.sample(rows.collect(), PER_BENCH, 1 << 40));
    }
    let mut seen: Vec<(usize, Scores)> = Vec::new();
    let (mut tally, mut plain) = (Domains::default(), Domains::default());
    let mut same = [0_usize; CHANGES.len()];
    for fold in 0..5 {
        let rows: Vec<usize> = usable
            .iter()
            .copied()
            .filter(|r| data.fold(*r) != fold)
            .collect();
        report.begin(&format!(
            "tiers, domains and changes, part {} of 5",
            fold + 1
        ));
        let learned = heads::learn(data, examples, copies, &rows);
        let weights = examples.weights(&learned, table, table.sharpness);
        let scorer = Scorer::read(&weights.encode()).expect("weights of our own");
        for &row in usable.iter().filter(|row| data.fold(**row) == fold) {
            let prompt = &data.rows[row].prompt;
            tally.add(&scorer.score(prompt), data.domains[row]);
            plain.add(&scorer.score(&stem(prompt)), data.domains[row]);
        }
        for &row in judged.iter().filter(|row| data.fold(**row) == fold) {
            let prompt = &data.rows[row].prompt;
            let scores = scorer.score(prompt);
            let tier = tiers::near(&scores.quality, DELTA);
            for (count, (_, change)) in same.iter_mut().zip(CHANGES) {
                let changed = scorer.score(&change(prompt));
                *count += usize::from(tiers::near(&changed.quality, DELTA) == tier);
            }
            seen.push((row, scores));
        }
    }
    policies(data, &seen, report);
    rankings(data, &seen, report);
    tally.print("as they are", report);
    plain.print("without answers to choose from", report);
    report.line("Same tier after a change that leaves the task as it was");
    for (count, (name, _)) in same.into_iter().zip(CHANGES) {
        let share = count as f64 / seen.len() as f64;
        report.at_least(name, share, 0.95);
    }
}

fn policies(data: &Data, seen: &[(usize, Scores)], report: &mut Report) {
    let case = |(row, scores): &(usize, Scores)| tiers::Case {
        expected: scores.quality,
        quality: data.quality[*row],
        tokens: data.rows[*row].prompt.len() as f64 / 4.0,
    };
    let cases: Vec<tiers::Case> = seen.iter().map(case).collect();
    report.line(&format!(
        "Four tiers at .2/.8/2/5, {} prompts of five families",
        cases.len()
    ));
    let count = cases.len() as f64;
    for tier in 0..TIERS {
        let quality = cases
            .iter()
            .map(|c| f64::from(c.quality[tier]))
            .sum::<f64>()
            / count;
        let expected = cases
            .iter()
            .map(|c| f64::from(c.expected[tier]))
            .sum::<f64>()
            / count;
        let off = cases
            .iter()
            .map(|c| f64::from(c.quality[tier] - c.expected[tier]).powi(2));
        let off = (off.sum::<f64>() / count).sqrt();
        report.line(&format!(
            "  tier {}: quality {quality:.3}, expected {expected:.3}, off by {off:.3} (rms)",
            tier + 1
        ));
    }
    let sweep = |choose: &dyn Fn(&tiers::Case, f64) -> usize, to: f64| -> Vec<tiers::Outcome> {
        let step = |at: i32| f64::from(at) / 200.0 * to;
        (0..=200)
            .map(|at| tiers::play(&cases, |case| choose(case, step(at))))
            .collect()
    };
    let worth = sweep(&|case, lambda| tiers::worth(&case.expected, lambda), 0.4);
    let near = sweep(
        &|case, delta| tiers::near(&case.expected, delta as f32),
        0.6,
    );
    report.line("  quality   cost: best worth   within delta   coin toss   (top tier alone = 1)");
    for quality in [0.90, 0.95, 0.98] {
        let line = format!(
            "  {quality:.2}      {:10.3}   {:12.3}   {:9.3}",
            tiers::cost_at(quality, worth.clone()),
            tiers::cost_at(quality, near.clone()),
            tiers::coin(&cases, quality)
        );
        report.line(&line);
    }
    for delta in [0.02, 0.05, 0.10, 0.20] {
        let outcome = tiers::play(&cases, |case| tiers::near(&case.expected, delta));
        report.line(&format!(
            "  within {delta:.2}: quality {:.3} at cost {:.3}, coin toss {:.3}",
            outcome.quality,
            outcome.cost,
            tiers::coin(&cases, outcome.quality)
        ));
    }
    let (fitted, other): (Vec<_>, Vec<_>) = (cases.iter().enumerate())
        .map(|(at, case)| (at, *case))
        .partition(|(at, _)| at % 2 == 0);
    let [fitted, other] = [fitted, other]
        .map(|half| -> Vec<tiers::Case> { half.into_iter().map(|(_, case)| case).collect() });
    let found = tiers::best_cuts(&fitted, 0.95);
    for (how, cases, cuts) in [
        ("as built in", &cases, CUTS),
        ("found on one half", &fitted, found),
        ("the same, other half", &other, found),
    ] {
        let outcome = tiers::play(cases, |case| tiers::cut(&case.expected, &cuts));
        report.line(&format!(
            "  cuts {cuts:.2?} {how}: quality {:.3} at cost {:.3}, coin toss {:.3}",
            outcome.quality,
            outcome.cost,
            tiers::coin(cases, outcome.quality)
        ));
    }
    let cost = tiers::cost_at(0.95, worth);
    report.at_most("cost of 95 % of the top tier's quality", cost, 0.67);
}

/// Rankings of all five data sets together, for tier 2 against tier 4.
fn rankings(data: &Data, seen: &[(usize, Scores)], report: &Report) {
    report.line("  the same prompts ranked for a model of tier 2 and one of tier 4");
    let cases = |score: &dyn Fn(usize, &Scores) -> f64| -> Vec<Case> {
        let case = |(row, scores): &(usize, Scores)| Case {
            score: score(*row, scores),
            weak: data.quality[*row][1].into(),
            strong: data.quality[*row][3].into(),
        };
        seen.iter().map(case).collect()
    };
    let length = |row: usize, _: &Scores| data.rows[row].prompt.len() as f64;
    print(
        "families",
        "random",
        &cases(&|row, _| mixed(row as u64) as f64),
        report,
    );
    print("families", "length", &cases(&length), report);
    for (ranking, of) in RANKINGS {
        let cases = cases(&|_, scores| of(&scores.quality).into());
        print("families", ranking, &cases, report);
    }
}

#[derive(Default)]
pub struct Domains {
    all: f64,
    first: f64,
    second: f64,
    pub surprise: f64,
}

impl Domains {
    pub fn add(&mut self, scores: &Scores, domain: usize) {
        let above = scores
            .domains
            .iter()
            .filter(|p| **p > scores.domains[domain])
            .count();
        self.all += 1.0;
        self.first += f64::from(u8::from(above == 0));
        self.second += f64::from(u8::from(above <= 1));
        self.surprise -= f64::from(scores.domains[domain].max(1e-6)).ln();
    }

    fn print(&self, how: &str, report: &mut Report) {
        report.line(&format!(
            "Domains of {} prompts {how}: right {:.3}, among the first two {:.3}, surprise {:.3} nats",
            self.all,
            self.first / self.all,
            self.second / self.all,
            self.surprise / self.all
        ));
    }
}
