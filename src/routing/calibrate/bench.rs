//! Evaluates a hybrid on labels: which targets it chooses with given settings, with what quality and at what cost.

use std::sync::Arc;

use serde::Serialize;

use super::{
    super as hybrid,
    labels::Label,
    number::{count, four_places},
};
use crate::{
    base::tokens::{TOKENS_PER_MESSAGE, estimate_tokens},
    catalog::{Catalog, Model, Router},
};
use hybrid::{
    candidate::{Candidate, Cap, Need, cheapest},
    cost, tiered, turn,
};

/// Expected quality of each tier for a prompt.
pub(crate) type Quality = [f32; 4];

/// A hybrid with the labels it is evaluated on.
pub(crate) struct Bench {
    pub hybrid: Arc<Model>,
    pub router: Router,
    /// The labels that have scores of all targets considered.
    pub cases: Vec<Case>,
    /// Targets that are ignored because they have too few labels.
    pub left_out: Vec<String>,
    /// The target with the highest mean score.
    pub best: usize,
}

/// One label as input of the hybrid's router.
pub(crate) struct Case {
    /// Its index among all labels.
    pub label: usize,
    pub need: Need,
    pub candidates: Vec<Candidate>,
    /// The score of each candidate.
    pub scores: Vec<f64>,
}

/// The results of a hybrid on some labels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Measured {
    pub labels: usize,
    /// As a share of the quality of the best target alone.
    #[serde(serialize_with = "four_places")]
    pub quality: f64,
    /// As a share of the cost of the best target alone.
    #[serde(serialize_with = "four_places")]
    pub cost: f64,
    /// Share of cases in which the choice was the cheapest of the targets with the best score.
    #[serde(serialize_with = "four_places")]
    pub agreement: f64,
}

impl Bench {
    /// `added_tokens` is what the built-in tools add to a prompt.
    pub(crate) fn new(
        hybrid: &Arc<Model>,
        router: &Router,
        labels: &[Label],
        catalog: &Catalog,
        added_tokens: u64,
    ) -> Self {
        let about = labels.iter().filter(|label| {
            hybrid
                .targets
                .iter()
                .any(|id| label.scores.contains_key(id))
        });
        let about: Vec<_> = about.collect();
        // A case needs scores of all targets, so a target with few scores would exclude most labels.
        let (counted, left_out): (Vec<_>, Vec<_>) =
            hybrid.targets.iter().cloned().partition(|id| {
                let scored = about.iter().filter(|label| label.scores.contains_key(id));
                scored.count() * 2 >= about.len().max(1)
            });
        let targets: Vec<_> = counted
            .iter()
            .filter_map(|id| catalog.find(id).cloned())
            .collect();
        let cases = labels.iter().enumerate();
        let cases = cases.filter_map(|(at, label)| Case::new(at, label, &targets, added_tokens));
        let mut bench = Self {
            hybrid: hybrid.clone(),
            router: router.clone(),
            cases: cases.collect(),
            left_out,
            best: 0,
        };
        bench.best = bench.best();
        bench
    }

    /// Number of targets considered.
    pub(crate) fn targets(&self) -> usize {
        self.hybrid.targets.len() - self.left_out.len()
    }

    fn best(&self) -> usize {
        let total = |target: usize| {
            self.cases
                .iter()
                .map(|case| case.scores[target])
                .sum::<f64>()
        };
        let price = |target: usize| self.cases.iter().map(|case| case.cost(target)).sum::<f64>();
        let targets = 0..self.cases.first().map_or(0, |case| case.scores.len());
        let better = |one: &usize, other: &usize| {
            let dearer = price(*other).total_cmp(&price(*one));
            let first = other.cmp(one);
            total(*one)
                .total_cmp(&total(*other))
                .then(dearer)
                .then(first)
        };
        targets.max_by(better).unwrap_or(0)
    }

    /// The results of a router on some of the cases.
    pub(crate) fn measure<'a>(
        &self,
        cases: impl IntoIterator<Item = &'a Case>,
        router: &Router,
        quality: &[Quality],
    ) -> Measured {
        let (mut labels, mut agreed) = (0, 0);
        let (mut reached, mut spent, mut top, mut full) = (0.0, 0.0, 0.0, 0.0);
        for case in cases {
            let chosen = case.choice(router, quality);
            labels += 1;
            agreed += usize::from(chosen == case.ideal());
            reached += case.scores[chosen];
            spent += case.cost(chosen);
            top += case.scores[self.best];
            full += case.cost(self.best);
        }
        Measured {
            labels,
            quality: share(reached, top),
            cost: share(spent, full),
            agreement: share(count(agreed), count(labels)),
        }
    }
}

impl Case {
    /// `None` if a target has no score or could not serve the prompt.
    fn new(at: usize, label: &Label, targets: &[Arc<Model>], added_tokens: u64) -> Option<Self> {
        let tokens = TOKENS_PER_MESSAGE + estimate_tokens(&label.prompt) + added_tokens;
        let need = Need {
            prompt_tokens: tokens,
            ..Need::default()
        };
        let scores = targets.iter().map(|model| label.scores.get(&model.id));
        let scores: Option<Vec<f64>> = scores.map(Option::<&f64>::copied).collect();
        let candidates = targets.iter().cloned();
        let candidates: Vec<_> = candidates
            .map(|model| Candidate::new(model, &need, None, Cap::default()))
            .collect();
        let all_fit = candidates.iter().all(|one| one.rejected.is_none());
        Some(Self {
            label: at,
            need,
            candidates,
            scores: scores.filter(|_| all_fit)?,
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "for shares of sums")]
    pub(crate) fn cost(&self, target: usize) -> f64 {
        self.candidates[target].cost.nanos() as f64
    }

    /// The index of the target that a router chooses on the first turn of a conversation. It uses the routers' own
    /// code, so that the measurement matches the service.
    pub(crate) fn choice(&self, router: &Router, quality: &[Quality]) -> usize {
        let (quality, eligible): (_, Vec<_>) =
            (&quality[self.label], self.candidates.iter().collect());
        let chosen = match router {
            Router::Cost(settings) => cost::choose(&eligible, quality, *settings).map(|one| one.0),
            Router::Tiered(settings) => {
                let (tier, _) = tiered::tier(quality, &self.need, settings);
                tiered::choose(&eligible, tier)
            }
            Router::Turn(settings) => {
                let context = turn::TurnContext {
                    quality,
                    prompt_tokens: self.need.prompt_tokens,
                    is_continuation: false,
                    expired_model: None,
                    session: None,
                };
                turn::choose(&eligible, &[], &context, settings).map(|one| one.0)
            }
            Router::Semantic(_) => None,
        };
        chosen.map_or(0, |chosen| self.place(chosen))
    }

    /// The index of the cheapest target with the best score.
    fn ideal(&self) -> usize {
        let top = self.scores.iter().copied().fold(0.0, f64::max);
        let best = self.candidates.iter().zip(&self.scores);
        let best = best.filter(|(_, score)| **score >= top).map(|(one, _)| one);
        cheapest(best).map_or(0, |one| self.place(one))
    }

    fn place(&self, candidate: &Candidate) -> usize {
        let mut all = self.candidates.iter();
        all.position(|one| std::ptr::eq(one, candidate))
            .unwrap_or(0)
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
