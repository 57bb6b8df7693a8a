//! Evaluates the scorer on unseen prompts by five-fold cross-validation.

use crate::{
    data::{Data, Others},
    heads::{self, Copies, Examples},
    report::Report,
    scorer::{Scorer, Weights},
};

mod folds;
mod pairs;
mod speed;
mod transfer;

/// The input of every part of the evaluation.
pub struct Evaluation<'a> {
    pub data: &'a Data,
    pub examples: &'a Examples,
    pub copies: &'a Copies,
    /// The weights under evaluation; parts that learn heads use only the embedding table.
    pub table: &'a Weights,
}

/// Computes all figures; [`Report::end`] returns whether every bar is met.
pub fn run(data: &Data, others: &Others, weights: &Weights) -> Report {
    let mut report = Report::new();
    report.begin("features");
    let prompts: Vec<&str> = data.rows.iter().map(|row| row.prompt.as_str()).collect();
    let examples = &Examples::new(&prompts, weights);
    let copies = &Copies::new(data, examples, weights);
    let evaluation = Evaluation {
        data,
        examples,
        copies,
        table: weights,
    };
    pairs::run(&evaluation, &mut report);
    folds::run(&evaluation, &mut report);
    transfer::never_seen(others, weights, &report);
    transfer::leave_one_out(&evaluation, &report);
    speed::run(&prompts, weights, &mut report);
    report
}

/// The sharpness of the softmax over domains with the lowest cross-entropy on a held-out fold.
pub fn sharpness(data: &Data, examples: &Examples, copies: &Copies, table: &Weights) -> f32 {
    let usable = heads::usable(data);
    let (judged, rows): (Vec<usize>, Vec<usize>) =
        usable.into_iter().partition(|row| data.fold(*row) == 0);
    let learned = heads::learn(data, examples, copies, &rows);
    let surprise = |sharpness: f32| {
        let weights = examples.weights(&learned, table, sharpness);
        let scorer = Scorer::read(&weights.encode()).expect("weights of our own");
        let mut tally = folds::Domains::default();
        for row in &judged {
            tally.add(&scorer.score(&data.rows[*row].prompt), data.domains[*row]);
        }
        tally.surprise
    };
    let tried = [4.0_f32, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 14.0];
    let mut best = (tried[0], f64::MAX);
    for sharpness in tried {
        let surprise = surprise(sharpness);
        if surprise < best.1 {
            best = (sharpness, surprise);
        }
    }
    best.0
}
