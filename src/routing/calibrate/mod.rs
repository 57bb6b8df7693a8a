//! Fits hybrids to labels of the operator's own: which setting of a router is the cheapest that is
//! good enough for the models that really answer, and what is to be expected of them.
//!
//! Nothing is asked and nothing is drawn: the same labels, catalog and weights give the same report.

mod bench;
mod fit;
mod halves;
mod heads;
mod labels;
mod number;
mod report;
#[cfg(test)]
mod tests;
mod verdict;

use std::sync::Arc;

pub use bench::Measured;
pub use heads::{Error, Line};
pub use labels::{Label, read};
pub use report::{Compared, Heads, Hybrid, Report, Setting};
pub use verdict::Verdict;

use self::{
    bench::{Bench, Case, Quality},
    verdict::Way,
};
use super::scorer::Scorer;
use crate::catalog::{Catalog, Model, Router};

/// Fewer labels say more about chance than about models.
pub const MIN_LABELS: usize = 50;
/// Of each half.
const MIN_HALF: usize = 20;

pub struct Asked<'a> {
    pub labels: &'a [Label],
    pub catalog: &'a Catalog,
    pub scorer: &'a Scorer,
    /// The hybrids to fit; all that there are labels for where none is named.
    pub models: &'a [String],
    /// As a share of always asking the best target.
    pub quality: f64,
    pub heads: bool,
    /// What the gateway's own tools add to the prompts of models that they are offered to.
    pub tool_tokens: u64,
}

/// What was found, and the refitted weights where they are better.
pub struct Calibrated {
    pub report: Report,
    pub weights: Option<Vec<u8>>,
}

/// What the scorer expects: with the weights that there are, with those fitted to one half, and
/// with those fitted to all.
struct Expected {
    before: Vec<Quality>,
    half: Vec<Quality>,
    all: Vec<Quality>,
}

pub fn calibrate(asked: &Asked<'_>) -> Result<Calibrated, String> {
    enough(asked.labels.len(), "usable labels")?;
    let fits = halves::fitting(asked.labels);
    let (benches, skipped) = benches(asked, &fits)?;
    let score = |scorer: &Scorer| -> Vec<Quality> {
        let prompts = asked.labels.iter().map(|label| &label.prompt);
        prompts.map(|prompt| scorer.score(prompt).quality).collect()
    };
    let before = score(asked.scorer);
    let refitted = asked.heads.then(|| refit(asked, &fits)).transpose()?;
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
        .map(|bench| fitted(bench, &fits, &expected, asked.quality))
        .collect();
    let report = Report {
        labels: asked.labels.len(),
        weights: asked.scorer.version().to_owned(),
        asked_quality: asked.quality,
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
        "there are {found} {what}, and {MIN_LABELS} are needed: what is fitted to fewer is noise"
    ))
}

/// Each hybrid with its labels, and what keeps others from being fitted.
fn benches(asked: &Asked<'_>, fits: &[bool]) -> Result<(Vec<Bench>, Vec<String>), String> {
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    if asked.models.is_empty() {
        for model in asked.catalog.models().filter(|model| model.is_hybrid()) {
            match bench(asked, model, fits) {
                Ok(bench) => found.push(bench),
                // What has no thresholds is nothing to be told about.
                Err(_) if matches!(model.router, Some(Router::Semantic(_))) => {}
                Err(why) => skipped.push(why),
            }
        }
    }
    for id in asked.models {
        let model = asked.catalog.find(id).filter(|model| model.is_hybrid());
        let model = model.ok_or_else(|| format!("`{id}` is no hybrid of the catalog"))?;
        found.push(bench(asked, model, fits)?);
    }
    if found.is_empty() && !asked.heads {
        let why = skipped.join("\n- ");
        return Err(format!("there is no hybrid to fit:\n- {why}"));
    }
    Ok((found, skipped))
}

fn bench(asked: &Asked<'_>, hybrid: &Arc<Model>, fits: &[bool]) -> Result<Bench, String> {
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
    let added = if offered { asked.tool_tokens } else { 0 };
    let bench = Bench::new(hybrid, router, asked.labels, asked.catalog, added);
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
    let on_other = compared(&held_out, &half.router, &expected.half);
    let way = Way {
        router: &half.router,
        quality: &expected.half,
    };
    let verdict = Verdict::of(
        bench,
        &held_out,
        (&bench.router, on_other.before),
        (way, on_other.after),
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
        held_out_half: on_other,
        all_labels: compared(&all, &whole.router, &expected.all),
        reached: whole.reached,
        verdict,
    }
}

/// Weights with heads fitted to one half of the labels, and to all.
struct Refitted {
    half: Scorer,
    all: Scorer,
    /// The latter as a file.
    file: Vec<u8>,
}

fn refit(asked: &Asked<'_>, fits: &[bool]) -> Result<(Heads, Option<Refitted>), String> {
    let points = heads::points(asked.labels, asked.catalog, asked.scorer);
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
        // What only rounding tells apart is no better.
        better: before.rms - after.rms > 1e-6,
        weights: None,
    };
    if !report.better {
        return Ok((report, None));
    }
    let file = heads::written(asked.scorer.weights(), &lines)?.encode();
    let all = Scorer::read(&file)?;
    let half = Scorer::read(&heads::written(asked.scorer.weights(), &half)?.encode())?;
    report.weights = Some(all.version().to_owned());
    Ok((report, Some(Refitted { half, all, file })))
}
