//! A target by what the request is about: like an operator's example, else of a known domain.

use super::{
    candidate::Candidate,
    decision::Reason,
    scorer::{DOMAINS, Meaning, Scores},
};
use crate::catalog::{Semantic, SemanticRoute};

/// How much an example that is not near enough by itself still speaks for its route.
const HINT: f32 = 0.25;

/// The route that a text belongs to; none where it is for the default. `examples` are those of each
/// route, in order.
pub fn route<'a>(
    scores: &Scores,
    meaning: &Meaning,
    examples: &[Vec<Meaning>],
    settings: &'a Semantic,
) -> (Option<&'a SemanticRoute>, Reason) {
    let mut by_example = Best::default();
    // What is likeliest of a domain that no route has is for the default.
    let mut by_domain = Best {
        score: likeliest(scores, |domain| !settings.has(domain)),
        route: None,
    };
    for (at, route) in settings.routes.iter().enumerate() {
        let examples = examples.get(at).into_iter().flatten();
        let near = examples.map(|example| example.near(meaning));
        let near = near.fold(0.0, f32::max);
        if near >= route.threshold {
            by_example.keep_better(near, route);
        }
        let likely = likeliest(scores, |domain| route.has(domain));
        by_domain.keep_better(likely + HINT * near, route);
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
    /// Of equals the first.
    fn keep_better(&mut self, score: f32, route: &'a SemanticRoute) {
        if score > self.score {
            *self = Self {
                score,
                route: Some(route),
            };
        }
    }
}

/// How likely a text is about the likeliest of these domains.
fn likeliest(scores: &Scores, of_these: impl Fn(&str) -> bool) -> f32 {
    let all = DOMAINS.into_iter().zip(scores.domains);
    let of_these = all.filter(|(name, _)| of_these(name));
    of_these.map(|(_, posterior)| posterior).fold(0.0, f32::max)
}

/// The first in service of a route's models, else of the default's, else of all.
pub fn choose<'a>(
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
