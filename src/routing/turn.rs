//! A target for the next turn of a conversation: the best for what this turn costs now, a prefix that
//! a provider has in its cache being cheaper than one it has not seen.

use super::{candidate::Candidate, decision::Reason, sessions::Session};
use crate::catalog::Turn;

/// A turn of fewer words goes on with the one before.
const CONTINUATION_WORDS: usize = 4;
/// For so many turns after a change to a weaker target there is no other.
const DOWN_TURNS: u64 = 2;

/// Not every language has spaces between its words.
const CONTINUATION_BYTES: usize = 40;

/// Whether a text says so little that the turn before says more about what is wanted.
pub fn goes_on(text: &str) -> bool {
    let text = text.trim();
    text.len() <= CONTINUATION_BYTES && text.split_whitespace().count() < CONTINUATION_WORDS
}

/// A turn, as far as it matters here.
pub struct Now<'a> {
    pub quality: &'a [f32; 4],
    pub prompt_tokens: u64,
    /// The scores are those of the turn before.
    pub goes_on: bool,
    pub session: Option<&'a Session>,
    /// Who answered last, where the session was left for too long.
    pub left_at: Option<&'a str>,
}

/// `callers` are those who may have called a tool, where the last message is what one said.
pub fn choose<'a>(
    eligible: &[&'a Candidate],
    callers: &[&'a Candidate],
    now: &Now<'_>,
    settings: &Turn,
) -> Option<(&'a Candidate, Reason)> {
    // A tool may take its time: what it says belongs to who called it, however late.
    let session = now.session.map(|session| session.model.as_str());
    let caller = session.or(now.left_at).and_then(|id| find(callers, id));
    if let Some(caller) = caller {
        return Some((caller, Reason::TurnLockTool));
    }
    let current = session.and_then(|id| find(eligible, id));
    let dearest = eligible.iter().map(|one| one.cost.nanos()).max()?.max(1);
    let worth = |one: &Candidate| {
        let warm = now.session.map_or(0, |session| session.warm(&one.model.id));
        let cost = one.cost_with_cached(now.prompt_tokens, warm).nanos();
        #[expect(clippy::cast_precision_loss, reason = "a share of two costs")]
        let share = cost as f32 / dearest as f32;
        one.quality(now.quality) - settings.lambda * share
    };
    let Some((current, session)) = current.zip(now.session) else {
        let reason = match (now.session, now.left_at) {
            // Who answered before cannot any more.
            (Some(_), _) => Reason::FallbackHealth,
            (None, Some(_)) => Reason::TurnIdleReset,
            (None, None) => Reason::TurnFirst,
        };
        return Some((best(eligible.iter().copied(), worth)?, reason));
    };
    let may_weaken = session.turns_since_down() >= DOWN_TURNS;
    let others = eligible.iter().copied();
    let others = others.filter(|one| may_weaken || one.tier() >= current.tier());
    let best = best(others, worth)?;
    if best.model.id != current.model.id && worth(best) > worth(current) + settings.hysteresis {
        return Some((best, Reason::TurnSwitchGain));
    }
    let stays = if now.goes_on {
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

/// The one that is worth most; of equals the one with the lower input price, then the first.
fn best<'a>(
    candidates: impl Iterator<Item = &'a Candidate>,
    worth: impl Fn(&Candidate) -> f32,
) -> Option<&'a Candidate> {
    candidates.reduce(|best, one| {
        let (this, that) = (worth(one), worth(best));
        let cheaper = one.model.prices.rates.input < best.model.prices.rates.input;
        #[expect(clippy::float_cmp, reason = "ties are told by the price")]
        if this > that || (this == that && cheaper) {
            one
        } else {
            best
        }
    })
}
