//! The hybrids' routers: which of a hybrid's targets answers a request.
//!
//! Pure, but for what is remembered of conversations (`sessions.rs`): the same request, catalog and
//! state of the upstreams give the same choice. Nothing is drawn and nothing is learned.

use std::sync::Arc;

pub mod calibrate;
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

pub use candidate::{Candidate, Cap, Need, Rejection};
pub use decision::{Decision, Reason, Term};
pub use knowledge::Knowledge;
pub use scorer::{DOMAINS, Scorer, Scores};
pub use sessions::{Found, SessionKey, Sessions, Turning};

use self::decision::{Considered, Domain, saving};
use crate::catalog::{Model, Router};

/// A request, as far as it matters for the choice.
pub struct Question<'a> {
    /// What the user said last.
    pub text: &'a str,
    pub need: &'a Need,
    /// The last message is what a tool said.
    pub after_tool: bool,
    /// What is remembered of the conversation, for the `turn` router.
    pub found: &'a Found,
}

/// A choice.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub target: Arc<Model>,
    /// Whom to ask in turn when it fails.
    pub ladder: Vec<Arc<Model>>,
    pub scores: Scores,
    pub decision: Decision,
    /// What to remember of it, if it is a turn of a conversation.
    pub turning: Option<Turning>,
}

/// Chooses one of the candidates, or none if all are rejected.
pub fn choose(
    hybrid: &Model,
    router: &Router,
    question: &Question<'_>,
    candidates: &[Candidate],
    knowledge: &Knowledge,
) -> Option<Chosen> {
    let of = |rejected: Option<Rejection>| -> Vec<&Candidate> {
        let candidates = candidates.iter();
        candidates.filter(|one| one.rejected == rejected).collect()
    };
    let mut eligible = of(None);
    // What a tool said belongs to who called it.
    let callers = match router {
        Router::Turn(_) if question.after_tool => of(None),
        _ => Vec::new(),
    };
    let resting = eligible.is_empty();
    if resting {
        // Being asked too often is better than nobody being asked.
        eligible = of(Some(Rejection::Unhealthy));
    }
    let session = question.found.session.as_ref();
    let goes_on = matches!(router, Router::Turn(_)) && turn::goes_on(question.text);
    let inherited = session.filter(|_| goes_on).map(|session| session.scores);
    let scorer = knowledge.scorer();
    let (read, meaning) = scorer.score_with_meaning(question.text);
    let expected = inherited.unwrap_or(read);
    let quality = &expected.quality;
    let (mut ladder, mut tier, mut route) = (Vec::new(), None, None);
    let (chosen, reason) = match router {
        Router::Cost(settings) => cost::choose(&eligible, quality, *settings)?,
        Router::Tiered(settings) => {
            let (wanted, reason) = tiered::tier(quality, question.need, settings);
            let chosen = tiered::choose(&eligible, wanted)?;
            if !resting {
                ladder = tiered::ladder(&eligible, chosen);
            }
            tier = Some(wanted);
            (chosen, reason)
        }
        Router::Semantic(settings) => {
            let (found, reason) = semantic::route(
                &expected,
                &meaning,
                knowledge.examples(&hybrid.id),
                settings,
            );
            route = found.map(|found| found.name.clone());
            semantic::choose(&eligible, found, reason, settings)?
        }
        Router::Turn(settings) => {
            let now = turn::Now {
                quality,
                prompt_tokens: question.need.prompt_tokens,
                goes_on: inherited.is_some(),
                left_at: question.found.left_at.as_deref(),
                session,
            };
            turn::choose(&eligible, &callers, &now, settings)?
        }
    };
    let dearest = eligible.iter().map(|one| one.cost);
    let dearest = dearest.fold(chosen.cost, Ord::max);
    Some(Chosen {
        target: chosen.model.clone(),
        ladder: ladder.into_iter().map(|one| one.model.clone()).collect(),
        decision: Decision {
            hybrid: hybrid.id.clone(),
            router: router.as_str(),
            version: scorer.version().to_owned(),
            chosen: chosen.model.id.clone(),
            reason: if resting {
                Reason::FallbackHealth
            } else {
                reason
            },
            tier,
            route,
            quality: expected.quality,
            is_inherited: inherited.is_some(),
            domain: Domain::of(&expected),
            prompt_tokens: question.need.prompt_tokens,
            candidates: candidates
                .iter()
                .map(|one| Considered::of(one, quality))
                .collect(),
            estimated_cost: chosen.cost,
            dearest_cost: dearest,
            estimated_saving: saving(chosen.cost, dearest),
            escalations: Vec::new(),
            route_us: 0,
        },
        scores: expected,
        turning: None,
    })
}
