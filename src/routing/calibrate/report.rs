//! The report of a calibration.

use serde::Serialize;

use super::{
    bench::Measured,
    heads::{Error, Lines},
    verdict::Verdict,
};
use crate::catalog::Router;

#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Report {
    pub labels: usize,
    /// The version of the current weights.
    pub weights: String,
    /// The required share of the best target's quality.
    pub asked_quality: f64,
    pub hybrids: Vec<Hybrid>,
    /// Hybrids that were not fitted, with the reasons.
    pub skipped: Vec<String>,
    pub heads: Option<Heads>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Hybrid {
    pub model: String,
    pub router: &'static str,
    /// The target with the best mean score; quality and cost are relative to it.
    pub best_target: String,
    /// Targets that are ignored because they have too few labels.
    pub left_out: Vec<String>,
    pub before: Setting,
    pub after: Setting,
    /// The setting fitted to one half of the labels, measured on that half.
    pub fitted_half: Compared,
    /// The setting fitted to one half, measured on the other.
    pub held_out_half: Compared,
    /// The setting fitted to all labels (`after`), measured on all.
    pub all_labels: Compared,
    /// Whether the required quality can be reached.
    pub reached: bool,
    pub verdict: Verdict,
}

/// A router's fitted number or numbers, in the syntax of the catalog.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Setting(pub String);

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Compared {
    pub before: Measured,
    pub after_setting: Setting,
    pub after: Measured,
}

/// The refitted heads, measured on the half that they were not fitted to.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Heads {
    /// Number of held-out scores.
    pub scores: usize,
    pub before: Error,
    pub after: Error,
    /// The linear functions fitted to all labels, the weakest tier first.
    pub lines: Lines,
    pub better: bool,
    /// The version of the new weights, if they are better.
    pub weights: Option<String>,
}

impl Setting {
    pub(crate) fn of(router: &Router) -> Self {
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
    /// The lines for the catalog; only a comment if the current setting should stay.
    pub(crate) fn toml(&self) -> String {
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
