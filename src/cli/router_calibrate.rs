//! `tollgate router calibrate`: hybrids fitted to what the operator's own models do.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::table;
use crate::{
    catalog::Catalog,
    config::{Config, OwnWeights, Tools},
    routing::{
        Scorer,
        calibrate::{
            self, Calibrated, CalibrationInput, Compared, Heads, Hybrid, Measured, Report, Setting,
        },
    },
    tools::Toolbox,
};

#[derive(Subcommand)]
pub enum RouterCommand {
    /// Fit the hybrids' thresholds to labels of your own; asks no gateway and no provider
    #[command(after_help = HELP)]
    Calibrate(Options),
}

const HELP: &str = "\
Labels are one prompt a line, with how well each model answered it, from 0 to 1:

  {\"prompt\": \"What is 2 + 2?\", \"scores\": {\"svc-native-fast\": 1, \"svc-pro\": 1}}

Half of them are fitted to and half are held out, to see whether the fit holds. The lines for the
catalog go to standard output, what to beware of to standard error.

Example:

  tollgate router calibrate labels.jsonl --config tollgate.toml --model svc-hybrid-tiered";

#[derive(Args)]
pub struct Options {
    /// The labels (JSON lines)
    labels: PathBuf,
    /// The configuration file, for its catalog and router weights; else the built-in ones
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A hybrid to fit; may be given several times. Else all that there are labels for
    #[arg(long, value_name = "ID")]
    model: Vec<String>,
    /// The least quality, as a share of always asking the best target
    #[arg(long, value_name = "SHARE", default_value = "0.95", value_parser = share)]
    quality: f64,
    /// Fit what is expected of each quality tier as well, and write new router weights
    #[arg(long, requires = "out")]
    heads: bool,
    /// Where new router weights go
    #[arg(long, value_name = "FILE", requires = "heads")]
    out: Option<PathBuf>,
    /// Print everything that was found as JSON
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    let fits = share > 0.0 && share <= 1.0;
    fits.then_some(share)
        .ok_or_else(|| "expected a number above 0 and up to 1".into())
}

/// What a configuration says about hybrids; without one, what is built in.
struct Known {
    catalog: Catalog,
    weights: Option<OwnWeights>,
    tool_tokens: u64,
}

impl Known {
    fn read(file: Option<&Path>) -> Result<Self, String> {
        let (catalog, weights, tools) = match file {
            Some(file) => {
                let config = Config::load(file).map_err(|error| error.to_string())?;
                (config.catalog, config.weights, config.tools)
            }
            None => (Catalog::built_in(), None, Tools::default()),
        };
        let tool_tokens = if tools.enabled {
            Toolbox::new(&tools)?.count().estimate
        } else {
            0
        };
        Ok(Self {
            catalog,
            weights,
            tool_tokens,
        })
    }

    fn scorer(&self) -> &Scorer {
        match &self.weights {
            Some(own) => &own.scorer,
            None => Scorer::embedded(),
        }
    }
}

pub fn run(command: &RouterCommand) -> Result<(), String> {
    let RouterCommand::Calibrate(options) = command;
    let known = Known::read(options.config.as_deref())?;
    let path = options.labels.display();
    let text = std::fs::read_to_string(&options.labels)
        .map_err(|error| format!("{path} cannot be read: {error}"))?;
    let labels = calibrate::read(&text, &known.catalog)
        .map_err(|wrong| format!("{path} cannot be used:\n- {wrong}"))?;
    eprintln!("{path}: {} labels", labels.len());
    let found = calibrate::calibrate(&CalibrationInput {
        labels: &labels,
        catalog: &known.catalog,
        scorer: known.scorer(),
        models: &options.model,
        quality: options.quality,
        heads: options.heads,
        tool_tokens: known.tool_tokens,
    });
    let Calibrated { report, weights } = found.map_err(|why| format!("{path}: {why}"))?;
    warn(&report);
    if let Some((out, weights)) = options.out.as_ref().zip(weights) {
        write(out, &weights)?;
        let shown = out.display();
        eprintln!("{shown} was written; to use it: weights = \"{shown}\" under [routing]");
        if report
            .hybrids
            .iter()
            .any(|one| one.verdict.objection().is_some())
        {
            eprintln!("warning: with these weights, settings that are kept choose differently");
        }
    }
    if options.json {
        println!("{}", as_json(&report)?);
    } else {
        print!("{}", told(&report));
    }
    Ok(())
}

/// In one go: a gateway that watches the file never sees half of it.
fn write(out: &Path, weights: &[u8]) -> Result<(), String> {
    if std::fs::read(out).is_ok_and(|there| Scorer::read(&there).is_err()) {
        let out = out.display();
        return Err(format!(
            "{out} is there and holds no router weights: name another file"
        ));
    }
    let mut beside = out.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, weights)
        .and_then(|()| std::fs::rename(&beside, out))
        .map_err(|error| format!("{} cannot be written: {error}", out.display()))
}

fn warn(report: &Report) {
    for skipped in &report.skipped {
        eprintln!("not fitted: {skipped}");
    }
    for hybrid in &report.hybrids {
        let model = &hybrid.model;
        for target in &hybrid.left_out {
            eprintln!("warning: `{model}`: `{target}` has too few labels, and is left out");
        }
        if !hybrid.reached {
            let asked = percent(report.asked_quality);
            eprintln!("warning: `{model}`: no setting has {asked} quality; this is the best");
        }
        if let Some(objection) = hybrid.verdict.objection() {
            let Setting(kept) = &hybrid.before;
            eprintln!(
                "warning: `{model}`: the held-out half does not bear it out: {objection}. \
                 Keep {kept}, or bring more labels"
            );
        }
    }
    if let Some(heads) = report.heads.as_ref().filter(|heads| !heads.better) {
        let (before, after) = (heads.before.rms, heads.after.rms);
        eprintln!(
            "warning: new weights are no better on the held-out half (error {after:.4}, \
             before {before:.4}): none were written"
        );
    }
}

fn as_json(report: &Report) -> Result<Value, String> {
    let mut value = serde_json::to_value(report).map_err(|error| error.to_string())?;
    for (hybrid, found) in report.hybrids.iter().enumerate() {
        value["hybrids"][hybrid]["toml"] = json!(found.toml());
    }
    Ok(value)
}

fn told(report: &Report) -> String {
    let mut parts: Vec<String> = Vec::new();
    if !report.hybrids.is_empty() {
        let rows: Vec<Value> = report.hybrids.iter().flat_map(rows).collect();
        let alone = report.hybrids.iter();
        let alone = alone.map(|one| format!("{} for {}", one.best_target, one.model));
        let alone: Vec<_> = alone.collect();
        parts.push(format!(
            "{}\n\nQuality and cost are shares of the best target alone: {}.\nExpect what the rows held out show: the others are read on the labels they were fitted to.\n",
            table::render(&json!({ "data": rows })),
            alone.join(", ")
        ));
    }
    parts.extend(report.heads.iter().map(heads));
    parts.extend(report.hybrids.iter().map(Hybrid::toml));
    parts.join("\n")
}

fn rows(hybrid: &Hybrid) -> Vec<Value> {
    let row = |labels: &str, setting: &Setting, measured: &Measured| {
        json!({
            "model": hybrid.model,
            "labels": format!("{} {labels}", measured.labels),
            "setting": setting.0,
            "quality": percent(measured.quality),
            "cost": percent(measured.cost),
            "agreement": percent(measured.agreement),
        })
    };
    let pair = |labels: &str, compared: &Compared| {
        [
            row(labels, &hybrid.before, &compared.before),
            row(labels, &compared.after_setting, &compared.after),
        ]
    };
    [
        pair("fitted", &hybrid.fitted_half),
        pair("held out", &hybrid.held_out_half),
        pair("in all", &hybrid.all_labels),
    ]
    .concat()
}

fn heads(heads: &Heads) -> String {
    let row = |when: &str, error: calibrate::Error| {
        json!({
            "weights": when,
            "held_out_scores": heads.scores,
            "error": format!("{:.4}", error.rms),
            "calibration": format!("{:.4}", error.calibration),
        })
    };
    let rows = [row("before", heads.before), row("after", heads.after)];
    table::render(&json!({ "data": rows })) + "\n"
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
