//! Fits hybrids to the operator's own labels: finds the cheapest setting of each router that is good enough with the
//! operator's models, and optionally refits the quality heads of the scorer.
//!
//! Calls no provider and uses no randomness: equal labels, catalog and weights give the same report. Unusable input is
//! refused with the reason.

mod bench;
mod fit;
mod heads;
mod labels;
mod number;
mod report;
mod split;
#[cfg(test)]
mod tests;
mod verdict;

use std::sync::Arc;

pub(crate) use bench::Measured;
pub(crate) use heads::Error;
pub(crate) use labels::{Label, read};
pub(crate) use report::{Compared, Heads, Hybrid, Report, Setting};
pub(crate) use verdict::Verdict;

use self::{
    bench::{Bench, Case, Quality},
    verdict::Setup,
};
use super::scorer::Scorer;
use crate::catalog::{Catalog, Model, Router};

/// The fewest labels that are accepted; with fewer the result would be mostly chance.
pub(crate) const MIN_LABELS: usize = 50;
/// The fewest labels in each half.
const MIN_HALF: usize = 20;

/// The input of a calibration.
pub(crate) struct CalibrationInput<'a> {
    pub labels: &'a [Label],
    pub catalog: &'a Catalog,
    pub scorer: &'a Scorer,
    /// The hybrids to fit; if empty, all that have enough labels.
    pub models: &'a [String],
    /// The required quality, as a share of that of the best target alone.
    pub quality: f64,
    /// Whether to refit the quality heads.
    pub heads: bool,
    /// Tokens that the built-in tools add to prompts of hybrids that offer them.
    pub tool_tokens: u64,
}

/// The report, and the refitted weights if they are better.
pub(crate) struct Calibrated {
    pub report: Report,
    pub weights: Option<Vec<u8>>,
}

/// Expected quality per label: with the current weights, with those fitted to one half of the labels, and with those
/// fitted to all.
struct Expected {
    before: Vec<Quality>,
    half: Vec<Quality>,
    all: Vec<Quality>,
}

pub(crate) fn calibrate(input: &CalibrationInput<'_>) -> Result<Calibrated, String> {
    enough(input.labels.len(), "usable labels")?;
    let fits = split::fitting_half(input.labels);
    let (benches, skipped) = benches(input, &fits)?;
    let score = |scorer: &Scorer| -> Vec<Quality> {
        let prompts = input.labels.iter().map(|label| &label.prompt);
        prompts.map(|prompt| scorer.score(prompt).quality).collect()
    };
    let before = score(input.scorer);
    let refitted = input.heads.then(|| refit(input, &fits)).transpose()?;
    let (heads, better) = refitted.unzip();
    let refitted = better.flatten();
    let with = |scorer: fn(&Refitted) -> &Scorer| {
        let refitted = refitted.as_ref();
        refitted.map_or_else(|| before.clone(), |refitted| score(scorer(refitted)))
    };
    let expected = Expected {
        half: with(|refitted| &refitted.half),
        all: with(|refitted| &refitted.all),
        before,
    };
    let weights = refitted.map(|refitted| refitted.file);
    let hybrids = benches
        .iter()
        .map(|bench| fitted(bench, &fits, &expected, input.quality))
        .collect();
    let report = Report {
        labels: input.labels.len(),
        weights: input.scorer.version().to_owned(),
        asked_quality: input.quality,
        hybrids,
        skipped,
        heads,
    };
    Ok(Calibrated { report, weights })
}

fn enough(found: usize, what: &str) -> Result<(), String> {
    if found >= MIN_LABELS {
        return Ok(());
    }
    Err(format!(
        "there are {found} {what}, and {MIN_LABELS} are needed: a fit to fewer would be noise"
    ))
}

/// The hybrids to fit with their labels, and the reasons why others are skipped.
fn benches(
    input: &CalibrationInput<'_>,
    fits: &[bool],
) -> Result<(Vec<Bench>, Vec<String>), String> {
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    if input.models.is_empty() {
        for model in input.catalog.models().filter(|model| model.is_hybrid()) {
            match bench(input, model, fits) {
                Ok(bench) => found.push(bench),
                // Semantic hybrids have no thresholds, so skipping them is not reported.
                Err(_) if matches!(model.router, Some(Router::Semantic(_))) => {}
                Err(why) => skipped.push(why),
            }
        }
    }
    for id in input.models {
        let model = input.catalog.find(id).filter(|model| model.is_hybrid());
        let model = model.ok_or_else(|| format!("`{id}` is no hybrid of the catalog"))?;
        found.push(bench(input, model, fits)?);
    }
    if found.is_empty() && !input.heads {
        let why = skipped.join("\n- ");
        return Err(format!("there is no hybrid to fit:\n- {why}"));
    }
    Ok((found, skipped))
}

fn bench(
    input: &CalibrationInput<'_>,
    hybrid: &Arc<Model>,
    fits: &[bool],
) -> Result<Bench, String> {
    let id = &hybrid.id;
    let router = match &hybrid.router {
        Some(Router::Semantic(_)) | None => {
            return Err(format!(
                "`{id}` chooses by subject: it has no threshold to fit"
            ));
        }
        Some(router) => router,
    };
    let offered = hybrid.builtin_tools && hybrid.has_feature("tools");
    let added = if offered { input.tool_tokens } else { 0 };
    let bench = Bench::new(hybrid, router, input.labels, input.catalog, added);
    if bench.targets() < 2 {
        return Err(format!("`{id}`: fewer than two of its targets have labels"));
    }
    enough(bench.cases.len(), "labels that score its targets")
        .map_err(|why| format!("`{id}`: {why}"))?;
    if bench
        .cases
        .iter()
        .all(|case| case.scores[bench.best] <= 0.0)
    {
        return Err(format!("`{id}`: every score of its targets is 0"));
    }
    let fitted = bench.cases.iter().filter(|case| fits[case.label]).count();
    if fitted.min(bench.cases.len() - fitted) < MIN_HALF {
        let why = "too many of its labels have prompts of the same words";
        return Err(format!("`{id}`: {why}: they cannot be cut into two halves"));
    }
    Ok(bench)
}

fn fitted(bench: &Bench, fits: &[bool], expected: &Expected, goal: f64) -> Hybrid {
    let all: Vec<&Case> = bench.cases.iter().collect();
    let (fitting, held_out): (Vec<&Case>, Vec<&Case>) =
        all.iter().copied().partition(|case| fits[case.label]);
    let half = fit::fit(bench, &fitting, &expected.half, goal);
    let whole = fit::fit(bench, &all, &expected.all, goal);
    let compared = |cases: &[&Case], router: &Router, quality: &[Quality]| Compared {
        before: bench.measure(cases.iter().copied(), &bench.router, &expected.before),
        after_setting: Setting::of(router),
        after: bench.measure(cases.iter().copied(), router, quality),
    };
    let on_held_out = compared(&held_out, &half.router, &expected.half);
    let setup = Setup {
        router: &half.router,
        quality: &expected.half,
    };
    let verdict = Verdict::of(
        bench,
        &held_out,
        (&bench.router, on_held_out.before),
        (setup, on_held_out.after),
        goal,
    );
    let best = &bench.cases[0].candidates[bench.best].model.id;
    Hybrid {
        model: bench.hybrid.id.clone(),
        router: bench.router.as_str(),
        best_target: best.clone(),
        left_out: bench.left_out.clone(),
        before: Setting::of(&bench.router),
        after: Setting::of(&whole.router),
        fitted_half: compared(&fitting, &half.router, &expected.half),
        held_out_half: on_held_out,
        all_labels: compared(&all, &whole.router, &expected.all),
        reached: whole.reached,
        verdict,
    }
}

/// Scorers with heads fitted to one half of the labels, and to all of them.
struct Refitted {
    half: Scorer,
    all: Scorer,
    /// The weights of `all` as a file.
    file: Vec<u8>,
}

fn refit(input: &CalibrationInput<'_>, fits: &[bool]) -> Result<(Heads, Option<Refitted>), String> {
    let points = heads::points(input.labels, input.catalog, input.scorer);
    let of_half = |fitting: bool| -> Vec<heads::Point> {
        let chosen = points
            .iter()
            .zip(fits)
            .filter(|(_, fits)| **fits == fitting);
        chosen.flat_map(|(points, _)| points).copied().collect()
    };
    let held_out = of_half(false);
    let half = heads::fit(&of_half(true));
    let lines = heads::fit(&points.concat());
    let (before, after) = (
        heads::error(&held_out, &heads::Lines::default()),
        heads::error(&held_out, &half),
    );
    let mut report = Heads {
        scores: held_out.len(),
        before,
        after,
        lines,
        // Differences in rounding do not count as better.
        better: before.rms - after.rms > 1e-6,
        weights: None,
    };
    if !report.better {
        return Ok((report, None));
    }
    let file = heads::apply(input.scorer.weights(), &lines)?.encode();
    let all = Scorer::read(&file)?;
    let half = Scorer::read(&heads::apply(input.scorer.weights(), &half)?.encode())?;
    report.weights = Some(all.version().to_owned());
    Ok((report, Some(Refitted { half, all, file })))
}
