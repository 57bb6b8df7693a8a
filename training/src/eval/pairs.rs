//! Evaluates a head that is learned for the published pair of models, from the features of the shipped heads.

use super::Evaluation;
use crate::{
    data::{Data, mixed},
    heads::{self, Copies, Examples},
    pair::{self, Case, Figures},
    report::Report,
    ridge::{Matrix, fit, predict},
};

/// Number of labels per draw, in the evaluation with few labels.
const FEW: usize = 1_500;
const DRAWS: u64 = 5;

pub fn run(evaluation: &Evaluation, report: &mut Report) {
    let Evaluation {
        data,
        examples,
        copies,
        ..
    } = *evaluation;
    let of = |keep: &dyn Fn(usize) -> bool| -> Vec<usize> {
        let paired = (0..data.rows.len()).filter(|row| data.rows[*row].pair().is_some());
        paired.filter(|row| keep(*row)).collect()
    };
    let bench = |row: usize| data.rows[row].bench.as_str();
    let mmlu = of(&|row| bench(row) == "mmlu");
    let clean = of(&|row| bench(row) == "mmlu" && !data.rows[row].is_mislabelled());
    let gsm8k = of(&|row| bench(row) == "gsm8k");
    let mut mix = data.sample(clean.clone(), gsm8k.len(), 1 << 40);
    mix.extend(&gsm8k);
    let both: Vec<usize> = clean.iter().chain(&gsm8k).copied().collect();
    let set = Set {
        data,
        examples,
        copies,
    };
    let parts = |row: usize| data.fold(row);

    report.begin("one weak and one strong model");
    report.line("One weak and one strong model, five parts by near-duplicate cluster");
    report.line("  set          prompts  ranking        APGR   95 %          CPT50  CPT80");
    let all = set.judge("MMLU", &mmlu, &mmlu, &parts, report);
    report.at_least("MMLU APGR", all.apgr, 0.64);
    set.judge("MMLU-clean", &clean, &clean, &parts, report);
    let all = set.judge("GSM8K", &gsm8k, &gsm8k, &parts, report);
    report.at_least("GSM8K APGR", all.apgr, 0.63);
    let all = set.judge("mix", &both, &mix, &parts, report);
    report.at_least("mix APGR", all.apgr, 0.64);
    report.at_most("mix CPT50", all.cpt50, 31.0);
    report.at_most("mix CPT80", all.cpt80, 60.0);

    report.begin("MMLU with few labels, and subject by subject");
    set.few(&mmlu, report);
    report.line("  parts by subject: each is judged without any prompt of its subjects");
    let subject = |row: usize| {
        let name = data.rows[row].group.bytes();
        (name.fold(0, |all, byte| mixed(all ^ u64::from(byte))) % 5) as usize
    };
    set.judge("MMLU", &mmlu, &mmlu, &subject, report);
}

struct Set<'a> {
    data: &'a Data,
    examples: &'a Examples,
    copies: &'a Copies,
}

impl Set<'_> {
    fn learn(&self, rows: &[usize]) -> Matrix<1> {
        let used = self.copies.with_typos(self.examples, rows);
        let mut gains: Vec<[f32; 1]> = rows
            .iter()
            .map(|row| self.data.rows[*row].pair().unwrap_or_default())
            .map(|(weak, strong)| [(strong - weak) as f32])
            .collect();
        let mut counts = balance(self.data, rows);
        gains.extend_from_within(..);
        counts.extend_from_within(..);
        fit(&used, &gains, &counts, heads::PAIR, 60)
    }

    fn cases(&self, rows: &[usize], score: impl Fn(usize) -> f64) -> Vec<Case> {
        let case = |row: &usize| {
            let (weak, strong) = self.data.rows[*row].pair().unwrap_or_default();
            Case {
                score: score(*row),
                weak,
                strong,
            }
        };
        rows.iter().map(case).collect()
    }

    /// Cross-validation: each of five folds by a head learned from the others without near-duplicates.
    fn judge(
        &self,
        name: &str,
        learned: &[usize],
        judged: &[usize],
        part: &dyn Fn(usize) -> usize,
        report: &Report,
    ) -> Figures {
        let mut scores = vec![0.0; self.data.rows.len()];
        for fold in 0..5 {
            let now: Vec<usize> = judged
                .iter()
                .copied()
                .filter(|r| part(*r) == fold)
                .collect();
            let mut held = vec![false; self.data.rows.len()];
            for row in &now {
                held[self.data.clusters[*row]] = true;
            }
            let rows: Vec<usize> = learned
                .iter()
                .copied()
                .filter(|row| part(*row) != fold && !held[self.data.clusters[*row]])
                .collect();
            let head = self.learn(&rows);
            for row in now {
                scores[row] = f64::from(predict(&head, &self.examples.all[row])[0]);
            }
        }
        let random = self.cases(judged, |row| mixed(row as u64) as f64);
        print(name, "random", &random, report);
        let length = self.cases(judged, |row| self.data.rows[row].prompt.len() as f64);
        print(name, "length", &length, report);
        print(name, "ours", &self.cases(judged, |row| scores[row]), report)
    }

    /// Evaluation with a few random labels for learning: on all other prompts, like the published figures, and on those
    /// that are not near-duplicates of a learned one.
    fn few(&self, mmlu: &[usize], report: &Report) {
        let mut found = Vec::new();
        for draw in 0..DRAWS {
            let mut rows = mmlu.to_vec();
            rows.sort_by_key(|row| mixed(*row as u64 ^ mixed(draw)));
            let rest = rows.split_off(FEW.min(rows.len()));
            let mut held = vec![false; self.data.rows.len()];
            for row in &rows {
                held[self.data.clusters[*row]] = true;
            }
            let apart = rest.iter().copied();
            let apart: Vec<usize> = apart
                .filter(|row| !held[self.data.clusters[*row]])
                .collect();
            let head = self.learn(&rows);
            let ours = |row: usize| f64::from(predict(&head, &self.examples.all[row])[0]);
            let length = |row: usize| self.data.rows[row].prompt.len() as f64;
            let apgr = |cases: Vec<Case>| pair::figures(&cases).apgr;
            found.push([
                apgr(self.cases(&rest, ours)),
                apgr(self.cases(&rest, length)),
                apgr(self.cases(&apart, ours)),
                apgr(self.cases(&apart, length)),
            ]);
        }
        for (at, name) in [
            "all the rest, ours",
            "all the rest, length",
            "without near-duplicates, ours",
            "without near-duplicates, length",
        ]
        .into_iter()
        .enumerate()
        {
            let found = found.iter().map(|found| found[at]);
            let mean = found.clone().sum::<f64>() / DRAWS as f64;
            let (low, high) = (found.clone().fold(1.0, f64::min), found.fold(0.0, f64::max));
            report.line(&format!(
                "  MMLU from {FEW} labels, {DRAWS} draws, {name}: APGR {mean:.3}, {low:.3} to {high:.3}"
            ));
        }
    }
}

/// Prints a line for one ranking of one set.
pub fn print(name: &str, ranking: &str, cases: &[Case], report: &Report) -> Figures {
    let figures = pair::figures(cases);
    let (low, high) = pair::interval(cases);
    report.line(&format!(
        "  {name:12} {:7}  {ranking:13}  {:.3}  [{low:.3},{high:.3}] {:5.1}  {:5.1}",
        cases.len(),
        figures.apgr,
        figures.cpt50,
        figures.cpt80
    ));
    figures
}

/// Weights of the rows: a data set counts by the square root of its size.
fn balance(data: &Data, rows: &[usize]) -> Vec<f32> {
    let gsm8k = |row: &usize| data.rows[*row].bench == "gsm8k";
    let few = rows.iter().filter(|row| gsm8k(row)).count().max(1) as f32;
    let many = rows.len() as f32 - few;
    let weight = if many > 0.0 { (many / few).sqrt() } else { 1.0 };
    rows.iter()
        .map(|row| if gsm8k(row) { weight } else { 1.0 })
        .collect()
}
