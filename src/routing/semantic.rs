//! Chooses a target by the subject of the request: by its similarity to an operator's example, otherwise by its domain.

use super::{
    candidate::Candidate,
    decision::Reason,
    scorer::{DOMAINS, Embedding, Scores},
};
use crate::catalog::{Semantic, SemanticRoute};

/// Weight of the similarity to an example that is below the route's threshold, added to the domain's probability.
const EXAMPLE_WEIGHT: f32 = 0.25;

/// The route of a text; `None` for the default. `examples` has those of each route, in the order of the routes.
pub(crate) fn route<'a>(
    scores: &Scores,
    embedding: &Embedding,
    examples: &[Vec<Embedding>],
    settings: &'a Semantic,
) -> (Option<&'a SemanticRoute>, Reason) {
    let mut by_example = Best::default();
    // A text whose most likely domain belongs to no route goes to the default.
    let mut by_domain = Best {
        score: likeliest(scores, |domain| !settings.has(domain)),
        route: None,
    };
    for (at, route) in settings.routes.iter().enumerate() {
        let examples = examples.get(at).into_iter().flatten();
        let near = examples.map(|example| example.similarity(embedding));
        let near = near.fold(0.0, f32::max);
        if near >= route.threshold {
            by_example.keep_better(near, route);
        }
        let likely = likeliest(scores, |domain| route.has(domain));
        by_domain.keep_better(likely + EXAMPLE_WEIGHT * near, route);
    }
    if by_example.route.is_some() {
        return (by_example.route, Reason::SemExemplar);
    }
    let sure = by_domain.score >= settings.confidence;
    match by_domain.route.filter(|_| sure) {
        Some(route) => (Some(route), Reason::SemDomain),
        None => (None, Reason::SemDefault),
    }
}

#[derive(Default)]
struct Best<'a> {
    score: f32,
    route: Option<&'a SemanticRoute>,
}

impl<'a> Best<'a> {
    /// Replaces the best if the score is higher; of equal ones the first stays.
    fn keep_better(&mut self, score: f32, route: &'a SemanticRoute) {
        if score > self.score {
            *self = Self {
                score,
                route: Some(route),
            };
        }
    }
}

/// The probability of the most likely of these domains.
fn likeliest(scores: &Scores, of_these: impl Fn(&str) -> bool) -> f32 {
    let all = DOMAINS.into_iter().zip(scores.domains);
    let of_these = all.filter(|(name, _)| of_these(name));
    of_these.map(|(_, posterior)| posterior).fold(0.0, f32::max)
}

/// The first eligible model of the route, otherwise of the default, otherwise of all.
pub(crate) fn choose<'a>(
    eligible: &[&'a Candidate],
    route: Option<&SemanticRoute>,
    reason: Reason,
    settings: &Semantic,
) -> Option<(&'a Candidate, Reason)> {
    let first = |models: &[String]| {
        let mut models = models.iter();
        models.find_map(|id| eligible.iter().copied().find(|one| one.model.id == *id))
    };
    if let Some(found) = route.and_then(|route| first(&route.models)) {
        return Some((found, reason));
    }
    let found = first(&settings.default).or_else(|| eligible.first().copied());
    found.map(|found| (found, Reason::SemDefault))
}
