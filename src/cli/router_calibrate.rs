//! `tollgate router calibrate`: fits the routers of hybrids to labels measured on the operator's own models.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    operator::table,
    output::{OutputOption, tell},
};
use crate::{
    catalog::Catalog,
    config::{Config, CustomWeights, Tools},
    routing::{
        Scorer,
        calibrate::{
            self, Calibrated, CalibrationInput, Compared, Heads, Hybrid, Measured, Report, Setting,
        },
    },
    tools::Toolbox,
};

#[derive(Subcommand)]
pub(crate) enum RouterCommand {
    /// Fit the hybrids' thresholds to your own labels; calls no gateway and no provider
    #[command(after_help = HELP)]
    Calibrate(Options),
}

const HELP: &str = "\
Labels have one prompt per line, with a score from 0 to 1 of each model's response:

  {\"prompt\": \"What is 2 + 2?\", \"scores\": {\"svc-native-fast\": 1, \"svc-pro\": 1}}

Half of the labels are used for the fit, the other half to check it. The settings for the catalog are
printed to standard output, warnings to standard error.

Example:

  tollgate router calibrate labels.jsonl --config tollgate.toml --model svc-hybrid-tiered";

#[derive(Args)]
pub(crate) struct Options {
    /// The file of labels (JSON lines)
    labels: PathBuf,
    /// The configuration file with the catalog and router weights [default: the built-in ones]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A hybrid to fit; may be repeated [default: all hybrids that have labels]
    #[arg(long, value_name = "ID")]
    model: Vec<String>,
    /// The lowest acceptable quality, as a share of the best target's quality
    #[arg(long, value_name = "SHARE", default_value = "0.95", value_parser = share)]
    quality: f64,
    /// Also fit the quality predictions of each tier, and write new router weights
    #[arg(long, requires = "out")]
    heads: bool,
    /// The file for the new router weights
    #[arg(long, value_name = "FILE", requires = "heads")]
    out: Option<PathBuf>,
    #[command(flatten)]
    output: OutputOption,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    let fits = share > 0.0 && share <= 1.0;
    fits.then_some(share)
        .ok_or_else(|| "expected a number above 0 and up to 1".into())
}

/// Catalog, router weights and tools of a configuration, or the built-in ones.
struct Setup {
    catalog: Catalog,
    weights: Option<CustomWeights>,
    /// Tokens that the built-in tools add to a prompt.
    tool_tokens: u64,
}

impl Setup {
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
            Some(custom) => &custom.scorer,
            None => Scorer::embedded(),
        }
    }
}

pub(crate) fn run(command: &RouterCommand) -> Result<(), String> {
    let RouterCommand::Calibrate(options) = command;
    let setup = Setup::read(options.config.as_deref())?;
    let path = options.labels.display();
    let text = std::fs::read_to_string(&options.labels)
        .map_err(|error| format!("{path} cannot be read: {error}"))?;
    let labels = calibrate::read(&text, &setup.catalog)
        .map_err(|wrong| format!("{path} cannot be used:\n- {wrong}"))?;
    tell(&format!("{path}: {} labels", labels.len()));
    let found = calibrate::calibrate(&CalibrationInput {
        labels: &labels,
        catalog: &setup.catalog,
        scorer: setup.scorer(),
        models: &options.model,
        quality: options.quality,
        heads: options.heads,
        tool_tokens: setup.tool_tokens,
    });
    let Calibrated { report, weights } = found.map_err(|reason| format!("{path}: {reason}"))?;
    warn(&report);
    if let Some((out, weights)) = options.out.as_ref().zip(weights) {
        write(out, &weights)?;
        let shown = out.display();
        tell(&format!(
            "{shown} was written; to use it: weights = \"{shown}\" under [routing]"
        ));
        if report
            .hybrids
            .iter()
            .any(|one| one.verdict.objection().is_some())
        {
            tell("warning: the new weights also change how hybrids with unchanged settings choose");
        }
    }
    let text = || as_text(&report).trim_end().to_owned();
    options.output.print(text, &as_json(&report)?)
}

/// Replaces the file atomically, because a gateway may be watching it. Refuses to overwrite a file of another kind.
fn write(out: &Path, weights: &[u8]) -> Result<(), String> {
    if std::fs::read(out).is_ok_and(|there| Scorer::read(&there).is_err()) {
        let out = out.display();
        return Err(format!(
            "{out} exists and does not contain router weights: name another file"
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
        tell(&format!("not fitted: {skipped}"));
    }
    for hybrid in &report.hybrids {
        let model = &hybrid.model;
        for target in &hybrid.left_out {
            tell(&format!(
                "warning: `{model}`: `{target}` has too few labels and is not considered"
            ));
        }
        if !hybrid.reached {
            let asked = percent(report.asked_quality);
            tell(&format!(
                "warning: `{model}`: no setting reaches {asked} quality; this is the best one"
            ));
        }
        if let Some(objection) = hybrid.verdict.objection() {
            let Setting(kept) = &hybrid.before;
            tell(&format!(
                "warning: `{model}`: the held-out half does not confirm the fit: {objection}. \
                 Keep {kept}, or add labels"
            ));
        }
    }
    if let Some(heads) = report.heads.as_ref().filter(|heads| !heads.better) {
        let (before, after) = (heads.before.rms, heads.after.rms);
        tell(&format!(
            "warning: new weights are no better on the held-out half (error {after:.4}, \
             before {before:.4}): none were written"
        ));
    }
}

fn as_json(report: &Report) -> Result<Value, String> {
    let mut value = serde_json::to_value(report).map_err(|error| error.to_string())?;
    for (hybrid, found) in report.hybrids.iter().enumerate() {
        value["hybrids"][hybrid]["toml"] = json!(found.toml());
    }
    Ok(value)
}

/// The report as text: a table, then the settings for the catalog.
fn as_text(report: &Report) -> String {
    let mut parts: Vec<String> = Vec::new();
    if !report.hybrids.is_empty() {
        let rows: Vec<Value> = report.hybrids.iter().flat_map(rows).collect();
        let alone = report.hybrids.iter();
        let alone = alone.map(|one| format!("{} for {}", one.best_target, one.model));
        let alone: Vec<_> = alone.collect();
        parts.push(format!(
            "{}\n\nQuality and cost are shares of the best target alone: {}.\nOnly the held-out rows predict new prompts: the others are measured on the labels used for the fit.\n",
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
