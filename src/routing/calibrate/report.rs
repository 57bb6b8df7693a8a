//! What a calibration found.

use serde::Serialize;

use super::{
    bench::Measured,
    heads::{Error, Lines},
    verdict::Verdict,
};
use crate::catalog::Router;

#[derive(Debug, PartialEq, Serialize)]
pub struct Report {
    pub labels: usize,
    /// The version of the weights that were there.
    pub weights: String,
    /// The share of the best target's quality that was asked for.
    pub asked_quality: f64,
    pub hybrids: Vec<Hybrid>,
    /// Hybrids that there are too few labels for, and why.
    pub skipped: Vec<String>,
    pub heads: Option<Heads>,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct Hybrid {
    pub model: String,
    pub router: &'static str,
    /// The target that the others are measured against.
    pub best_target: String,
    /// Targets that are not in the count, for want of labels.
    pub left_out: Vec<String>,
    pub before: Setting,
    pub after: Setting,
    /// Fitted to one half of the labels, and read on it.
    pub fitted_half: Compared,
    /// The same setting, read on the other half.
    pub held_out_half: Compared,
    /// Fitted to all labels: what `after` is.
    pub all_labels: Compared,
    /// Whether the quality that was asked for can be had.
    pub reached: bool,
    pub verdict: Verdict,
}

/// A router's fitted number or numbers, in the words of the catalog.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Setting(pub String);

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    pub before: Measured,
    pub after_setting: Setting,
    pub after: Measured,
}

/// The refitted heads, read on the half that they were not fitted to.
#[derive(Debug, PartialEq, Serialize)]
pub struct Heads {
    /// How many scores of models are held out.
    pub scores: usize,
    pub before: Error,
    pub after: Error,
    /// Fitted to all labels, the weakest tier first.
    pub lines: Lines,
    pub better: bool,
    /// The version of the new weights, where they are better.
    pub weights: Option<String>,
}

impl Setting {
    pub fn of(router: &Router) -> Self {
        Self(match router {
            Router::Cost(settings) => format!("give = {}", settings.give),
            Router::Tiered(settings) => {
                let cuts = settings.cuts.map(|cut| format!("{cut:?}"));
                format!("cuts = [{}]", cuts.join(", "))
            }
            Router::Turn(settings) => format!("lambda = {}", settings.lambda),
            Router::Semantic(_) => String::new(),
        })
    }
}

impl Hybrid {
    /// The lines for the catalog; comments only, where what there is should stay.
    pub fn toml(&self) -> String {
        let Self { model, router, .. } = self;
        let (Setting(kept), Setting(found)) = (&self.before, &self.after);
        match self.verdict {
            Verdict::Confirmed if kept != found => {
                let place = match router {
                    &"cost" => "below its [[models]] entry, in place of a `mode`",
                    _ => "below its [[models]] entry",
                };
                format!("# {model}: {place}\n[models.{router}]\n{found}\n")
            }
            Verdict::Confirmed | Verdict::Unchanged => {
                format!("# {model}: {kept} fits already\n")
            }
            _ => format!("# {model}: keep {kept}; not borne out: {found}\n"),
        }
    }
}
