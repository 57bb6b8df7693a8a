//! Chooses the target of a hybrid for each request. Deterministic: equal requests with the same catalog, upstream
//! health and conversation state (`sessions.rs`, the only state) get the same target. There is no randomness, and
//! nothing is learned at run time.
//!
//! Choosing cannot fail: if no target can serve the request, there is no choice, and every candidate has the reason.
//! Weights and labels that cannot be used are refused with the reason.
//!
//! It may use `catalog` and `base`.

use std::sync::Arc;

pub(crate) mod calibrate;
mod candidate;
mod cost;
mod decision;
mod knowledge;
pub mod scorer;
mod semantic;
mod sessions;
mod tiered;
mod turn;

#[cfg(test)]
mod tests;

pub(crate) use candidate::{Candidate, Cap, Need, Rejection};
pub(crate) use decision::{Decision, Reason, Term};
pub(crate) use knowledge::Knowledge;
pub use scorer::Scorer;
pub(crate) use scorer::Scores;
pub(crate) use sessions::{PendingTurn, SessionKey, SessionLookup, Sessions};

use self::decision::{ConsideredCandidate, Domain, saving};
use crate::catalog::{Model, Router};

/// The properties of a request that the choice depends on.
pub(crate) struct RoutingRequest<'a> {
    /// The content of the last user message.
    pub text: &'a str,
    pub need: &'a Need,
    /// Whether the last message is a tool's output.
    pub after_tool: bool,
    /// The stored state of the conversation, for the `turn` router.
    pub found: &'a SessionLookup,
}

/// The choice for one request.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub target: Arc<Model>,
    /// Models to try in this order if the target fails.
    pub fallbacks: Vec<Arc<Model>>,
    pub scores: Scores,
    pub decision: Decision,
    /// What the `turn` router stores once the call was served.
    pub pending_turn: Option<PendingTurn>,
}

/// Chooses one of the candidates; `None` if all are rejected. Candidates that are only unhealthy are used if there are
/// no others.
pub(crate) fn choose(
    hybrid: &Model,
    router: &Router,
    request: &RoutingRequest<'_>,
    candidates: &[Candidate],
    knowledge: &Knowledge,
) -> Option<Chosen> {
    let of = |rejected: Option<Rejection>| -> Vec<&Candidate> {
        let candidates = candidates.iter();
        candidates.filter(|one| one.rejected == rejected).collect()
    };
    let mut eligible = of(None);
    // The output of a tool goes to the model that called the tool.
    let tool_callers = match router {
        Router::Turn(_) if request.after_tool => of(None),
        _ => Vec::new(),
    };
    let all_unhealthy = eligible.is_empty();
    if all_unhealthy {
        // A request to an unhealthy target is better than none.
        eligible = of(Some(Rejection::Unhealthy));
    }
    let session = request.found.session.as_ref();
    let is_continuation = matches!(router, Router::Turn(_)) && turn::is_continuation(request.text);
    let inherited = session
        .filter(|_| is_continuation)
        .map(|session| session.scores);
    let scorer = knowledge.scorer();
    let (read, embedding) = scorer.score_with_embedding(request.text);
    let expected = inherited.unwrap_or(read);
    let quality = &expected.quality;
    let (mut fallbacks, mut tier, mut route) = (Vec::new(), None, None);
    let (chosen, reason) = match router {
        Router::Cost(settings) => cost::choose(&eligible, quality, *settings)?,
        Router::Tiered(settings) => {
            let (wanted, reason) = tiered::tier(quality, request.need, settings);
            let chosen = tiered::choose(&eligible, wanted)?;
            if !all_unhealthy {
                fallbacks = tiered::fallbacks(&eligible, chosen);
            }
            tier = Some(wanted);
            (chosen, reason)
        }
        Router::Semantic(settings) => {
            let (found, reason) = semantic::route(
                &expected,
                &embedding,
                knowledge.examples(&hybrid.id),
                settings,
            );
            route = found.map(|found| found.name.clone());
            semantic::choose(&eligible, found, reason, settings)?
        }
        Router::Turn(settings) => {
            let context = turn::TurnContext {
                quality,
                prompt_tokens: request.need.prompt_tokens,
                is_continuation: inherited.is_some(),
                expired_model: request.found.expired_model.as_deref(),
                session,
            };
            turn::choose(&eligible, &tool_callers, &context, settings)?
        }
    };
    let max_cost = eligible.iter().map(|one| one.cost);
    let max_cost = max_cost.fold(chosen.cost, Ord::max);
    Some(Chosen {
        target: chosen.model.clone(),
        fallbacks: fallbacks.into_iter().map(|one| one.model.clone()).collect(),
        decision: Decision {
            hybrid: hybrid.id.clone(),
            router: router.as_str(),
            version: scorer.version().to_owned(),
            chosen: chosen.model.id.clone(),
            reason: if all_unhealthy {
                Reason::FallbackHealth
            } else {
                reason
            },
            tier,
            route,
            quality: expected.quality,
            is_inherited: inherited.is_some(),
            domain: Domain::of(&expected),
            prompt_tokens: request.need.prompt_tokens,
            candidates: candidates
                .iter()
                .map(|one| ConsideredCandidate::of(one, quality))
                .collect(),
            estimated_cost: chosen.cost,
            dearest_cost: max_cost,
            estimated_saving: saving(chosen.cost, max_cost),
            escalations: Vec::new(),
            route_us: 0,
        },
        scores: expected,
        pending_turn: None,
    })
}
