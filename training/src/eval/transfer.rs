//! Evaluates how well the quality heads rank prompts of a data set that they were not learned from.
//!
//! The figures are for the weakest and the strongest model of the set. No head is learned for this pair: prompts are
//! ranked by the expected quality of the tiers.

use std::collections::{BTreeMap, BTreeSet};

use super::{Evaluation, pairs::print};
use crate::{
    data::{KNOWN, Others, Row, mixed},
    heads,
    pair::Case,
    report::Report,
    scorer::{Scorer, TIERS, Weights},
};

/// Maps the expected quality of the tiers to a number that is higher if a strong model is needed.
type Ranking = fn(&[f32; TIERS]) -> f32;

/// Rankings by the need for a strong model; the last is the sum of the two before it.
pub const RANKINGS: [(&str, Ranking); 4] = [
    ("q4 - q1", |q| q[3] - q[0]),
    ("q4 - q2", |q| q[3] - q[1]),
    ("1 - (q1+q2)/2", |q| 1.0 - f32::midpoint(q[0], q[1])),
    ("last two", |q| {
        q[3] - q[1] + 1.0 - f32::midpoint(q[0], q[1])
    }),
];

/// The weakest and the strongest model by mean score, of those with scores for at least 90 % of the prompts.
fn extremes(rows: &[&Row]) -> Option<(String, String)> {
    let mut models: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    for row in rows {
        for (model, score) in &row.scores {
            let (sum, count) = models.entry(model).or_default();
            (*sum, *count) = (*sum + score, *count + 1);
        }
    }
    let mut means: Vec<(f64, &str)> = models
        .into_iter()
        .filter(|(_, (_, count))| count * 10 >= rows.len() * 9)
        .map(|(model, (sum, count))| (sum / count as f64, model))
        .collect();
    means.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (weak, strong) = (means.first()?, means.last()?);
    (strong.0 > weak.0).then(|| (weak.1.into(), strong.1.into()))
}

/// Prints the figures of one set, a line per ranking.
fn judge(name: &str, rows: &[&Row], scorer: &Scorer, report: &Report) {
    let Some((weak, strong)) = extremes(rows) else {
        report.line(&format!("  {name}: no model is better than another"));
        return;
    };
    let both: Vec<(&str, f64, f64)> = rows
        .iter()
        .filter_map(|row| {
            let (weak, strong) = (row.scores.get(&weak)?, row.scores.get(&strong)?);
            Some((row.prompt.as_str(), *weak, *strong))
        })
        .collect();
    let mean =
        |of: fn(&(&str, f64, f64)) -> f64| both.iter().map(of).sum::<f64>() / both.len() as f64;
    report.line(&format!(
        "  {name}: {weak} {:.3}, {strong} {:.3}",
        mean(|case| case.1),
        mean(|case| case.2)
    ));
    let cases = |score: &dyn Fn(usize, &str) -> f64| -> Vec<Case> {
        let each = both.iter().enumerate();
        each.map(|(at, &(prompt, weak, strong))| Case {
            score: score(at, prompt),
            weak,
            strong,
        })
        .collect()
    };
    print(
        name,
        "random",
        &cases(&|at, _| mixed(at as u64) as f64),
        report,
    );
    print(
        name,
        "length",
        &cases(&|_, prompt| prompt.len() as f64),
        report,
    );
    for (ranking, of) in RANKINGS {
        let score = |_: usize, prompt: &str| of(&scorer.score(prompt).quality).into();
        print(name, ranking, &cases(&score), report);
    }
}

/// Evaluates each known set with heads learned from the others.
pub fn leave_one_out(evaluation: &Evaluation, report: &Report) {
    let Evaluation {
        data,
        examples,
        copies,
        table,
    } = evaluation;
    report.line("Each set by heads learned from the other sets only");
    for bench in KNOWN {
        report.begin(&format!("without {bench}"));
        let usable = heads::usable(data);
        let (judged, others): (Vec<usize>, Vec<usize>) = usable
            .into_iter()
            .partition(|row| data.rows[*row].bench == bench);
        if judged.is_empty() {
            continue;
        }
        // Also excludes near-duplicates of its prompts in the other sets.
        let seen: BTreeSet<usize> = judged.iter().map(|row| data.clusters[*row]).collect();
        let rows: Vec<usize> = others
            .into_iter()
            .filter(|row| !seen.contains(&data.clusters[*row]))
            .collect();
        let learned = heads::learn(data, examples, copies, &rows);
        let weights = examples.weights(&learned, table, 1.0);
        let scorer = Scorer::read(&weights.encode()).expect("weights of our own");
        let judged: Vec<&Row> = judged.iter().map(|row| &data.rows[*row]).collect();
        judge(bench, &judged, &scorer, report);
    }
}

/// Evaluates the weights on the data sets that nothing was learned from.
pub fn never_seen(others: &Others, weights: &Weights, report: &Report) {
    let benches: BTreeSet<&str> = others.rows.iter().map(|row| row.bench.as_str()).collect();
    report.begin("sets never learned from");
    if benches.is_empty() {
        report.line("Sets never learned from: none in this data");
        return;
    }
    report.line("Sets never learned from, by the weights as they are");
    let scorer = Scorer::read(&weights.encode()).expect("weights of our own");
    for bench in benches {
        let rows = others.rows.iter().zip(&others.novel);
        let rows: Vec<(&Row, &bool)> = rows.filter(|(row, _)| row.bench == bench).collect();
        let all: Vec<&Row> = rows.iter().map(|(row, _)| *row).collect();
        judge(bench, &all, &scorer, report);
        let novel: Vec<&Row> = rows
            .iter()
            .filter(|(_, n)| **n)
            .map(|(row, _)| *row)
            .collect();
        if !novel.is_empty() && novel.len() < all.len() {
            report
                .line("  only those that share no ten words in a row with a prompt learned from:");
            judge(bench, &novel, &scorer, report);
        }
    }
}
