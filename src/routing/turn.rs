//! Chooses the target for the next turn of a conversation: the best quality for the current cost, where the prompt
//! tokens that a provider may have cached count at the cached price.

use super::{candidate::Candidate, decision::Reason, sessions::Session};
use crate::catalog::Turn;

/// A turn with fewer words is a continuation of the previous one.
const CONTINUATION_WORDS: usize = 4;
/// Number of turns after a change to a weaker target in which there is no further one.
const DOWNGRADE_TURNS: u64 = 2;

/// The most bytes of a continuation, for languages without spaces between words.
const CONTINUATION_BYTES: usize = 40;

/// Whether a text is so short that the scores of the previous turn describe the task better.
pub(crate) fn is_continuation(text: &str) -> bool {
    let text = text.trim();
    text.len() <= CONTINUATION_BYTES && text.split_whitespace().count() < CONTINUATION_WORDS
}

/// The properties of a turn that the choice depends on.
pub(crate) struct TurnContext<'a> {
    pub quality: &'a [f32; 4],
    pub prompt_tokens: u64,
    /// Whether `quality` is that of the previous turn.
    pub is_continuation: bool,
    pub session: Option<&'a Session>,
    /// The model of the last turn, if the session has expired.
    pub expired_model: Option<&'a str>,
}

/// Chooses a target. `tool_callers` are the candidates that may have called a tool; empty unless the last message is a
/// tool's output.
pub(crate) fn choose<'a>(
    eligible: &[&'a Candidate],
    tool_callers: &[&'a Candidate],
    context: &TurnContext<'_>,
    settings: &Turn,
) -> Option<(&'a Candidate, Reason)> {
    // The output of a tool goes to the model that called it, even after the session has expired: tools may be slow.
    let session = context.session.map(|session| session.model.as_str());
    let caller = session
        .or(context.expired_model)
        .and_then(|id| find(tool_callers, id));
    if let Some(caller) = caller {
        return Some((caller, Reason::TurnLockTool));
    }
    let current = session.and_then(|id| find(eligible, id));
    let max_cost = eligible.iter().map(|one| one.cost.nanos()).max()?.max(1);
    let worth = |one: &Candidate| {
        let cached = context
            .session
            .map_or(0, |session| session.cached_tokens(&one.model.id));
        let cost = one.cost_with_cached(context.prompt_tokens, cached).nanos();
        #[expect(clippy::cast_precision_loss, reason = "a share of two costs")]
        let share = cost as f32 / max_cost as f32;
        one.quality(context.quality) - settings.lambda * share
    };
    let Some((current, session)) = current.zip(context.session) else {
        let reason = match (context.session, context.expired_model) {
            // The model of the last turn is no longer available.
            (Some(_), _) => Reason::FallbackHealth,
            (None, Some(_)) => Reason::TurnIdleReset,
            (None, None) => Reason::TurnFirst,
        };
        return Some((best(eligible.iter().copied(), worth)?, reason));
    };
    let may_weaken = session.turns_since_downgrade() >= DOWNGRADE_TURNS;
    let others = eligible.iter().copied();
    let others = others.filter(|one| may_weaken || one.tier() >= current.tier());
    let best = best(others, worth)?;
    if best.model.id != current.model.id && worth(best) > worth(current) + settings.hysteresis {
        return Some((best, Reason::TurnSwitchGain));
    }
    let stays = if context.is_continuation {
        Reason::TurnContinuation
    } else {
        Reason::TurnStayCache
    };
    Some((current, stays))
}

fn find<'a>(candidates: &[&'a Candidate], id: &str) -> Option<&'a Candidate> {
    let mut candidates = candidates.iter().copied();
    candidates.find(|one| one.model.id == id)
}

/// The candidate with the highest worth; of equals the one with the lower input price, then the first.
fn best<'a>(
    candidates: impl Iterator<Item = &'a Candidate>,
    worth: impl Fn(&Candidate) -> f32,
) -> Option<&'a Candidate> {
    candidates.reduce(|best, one| {
        let (this, that) = (worth(one), worth(best));
        let cheaper = one.model.prices.rates.input < best.model.prices.rates.input;
        #[expect(clippy::float_cmp, reason = "ties are decided by the price")]
        if this > that || (this == that && cheaper) {
            one
        } else {
            best
        }
    })
}
