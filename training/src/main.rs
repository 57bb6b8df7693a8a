//! Trains the weights of Tollgate's scorer and evaluates them.
//!
//! Equal data and an equal table always give the same bytes.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "statistics over a few thousand prompts"
)]

use std::{collections::HashMap, env, fs, path::Path, process::ExitCode};

use crate::scorer::{Scorer, Weights};

mod changes;
mod data;
mod distill;
mod domains;
mod eval;
mod heads;
mod pair;
mod report;
mod ridge;
// The scorer's own source, so that training and scoring compute the same features. Nothing else of the gateway is
// built.
#[path = "../../src/routing/scorer/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the gateway uses more of it than training does"
)]
mod scorer;
mod table;
mod tiers;

const USAGE: &str = "\
tollgate-training distill --model model.safetensors --vocab vocab.txt --out TABLE
tollgate-training train --data FILE --table TABLE --out router.bin [--report FILE]
tollgate-training eval --data FILE [--weights router.bin] [--report FILE]";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command. Returns whether every bar that was measured is met.
fn run() -> Result<bool, String> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (command, options) = arguments.split_first().ok_or(USAGE)?;
    let (pairs, rest) = options.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(USAGE.into());
    }
    let options: HashMap<&str, &Path> = pairs
        .iter()
        .map(|[name, value]| (name.as_str(), Path::new(value)))
        .collect();
    let option = |name: &str| options.get(name).copied();
    let needed = |name: &str| option(name).ok_or(USAGE);
    match command.as_str() {
        "distill" => {
            let table = distill::run(needed("--model")?, needed("--vocab")?)?;
            table.write(needed("--out")?).map(|()| true)
        }
        "train" => {
            let (data, out) = (needed("--data")?, needed("--out")?);
            train(data, needed("--table")?, out)?;
            match option("--report") {
                Some(report) => eval(data, Some(out), Some(report)),
                None => Ok(true),
            }
        }
        "eval" => eval(needed("--data")?, option("--weights"), option("--report")),
        _ => Err(USAGE.into()),
    }
}

fn train(data: &Path, table: &Path, out: &Path) -> Result<(), String> {
    let (data, _) = data::Data::read(data)?;
    let usable = heads::usable(&data);
    let prompts: Vec<&str> = data.rows.iter().map(|row| row.prompt.as_str()).collect();
    let table = table::Table::read(table)?.pack(&prompts);
    let examples = heads::Examples::new(&prompts, &table);
    let copies = heads::Copies::new(&data, &examples, &table);
    let sharpness = eval::sharpness(&data, &examples, &copies, &table);
    let learned = heads::learn(&data, &examples, &copies, &usable);
    let weights = examples.weights(&learned, &table, sharpness);
    let file = weights.encode();
    fs::write(out, &file).map_err(|e| format!("{}: {e}", out.display()))?;
    let version = Scorer::read(&file)?.version().to_owned();
    println!("weights {version}, sharpness of domains {sharpness}");
    Ok(())
}

/// Evaluates with the embedding table of the weights; the heads are learned anew for every fold.
fn eval(data: &Path, weights: Option<&Path>, file: Option<&Path>) -> Result<bool, String> {
    let weights: Weights = match weights {
        None => Scorer::embedded().weights().clone(),
        Some(path) => {
            let file = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
            Scorer::read(&file)?.weights().clone()
        }
    };
    let (data, others) = data::Data::read(data)?;
    let report = eval::run(&data, &others, &weights);
    let met = report.end();
    file.map_or(Ok(()), |file| report.write(file))?;
    Ok(met)
}
