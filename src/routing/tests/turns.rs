//! Measures the `turn` router on simulated conversations, against a router that stays with its first choice and one
//! that compares list prices on every turn. Tokens that a provider has cached cost the cached price with every router.

use std::{collections::HashMap, time::Instant};

use super::{TARGETS, model, pending_turn};
use crate::{
    catalog::Turn,
    routing::{
        candidate::{Candidate, Cap, Need},
        sessions::{SessionKey, Sessions},
        turn,
    },
};

const CONVERSATIONS: u64 = 150;
const TURNS: u64 = 9;
/// Tokens that a turn adds: a question and its answer.
const TURN_TOKENS: u64 = 400;
/// Share of turns that stay with the topic of the previous one.
const CONTINUITY: f64 = 0.8;
/// Settings of `lambda` that are compared, in fiftieths.
const LAMBDA_STEPS: u8 = 40;

#[derive(Clone, Copy, Debug)]
enum Policy {
    Turn,
    Stick,
    ListPrice,
    Dearest,
}

/// Deterministic pseudo-random numbers from 0 to 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bits = u32::try_from((z ^ (z >> 31)) >> 32).unwrap();
        f64::from(bits) / f64::from(u32::MAX)
    }
}

/// The quality of each tier for the turns of a conversation.
fn conversation(seed: u64) -> Vec<[f32; 4]> {
    let mut random = Random(seed);
    let mut ease = random.next();
    let turn = |_| {
        if random.next() > CONTINUITY {
            ease = random.next();
        }
        let slip = (random.next() - 0.5) * 0.8;
        [-0.9, 0.0, 0.8, 1.4].map(|tier| {
            let power: f64 = tier + 5.0 * (ease - 0.5) + slip;
            #[expect(clippy::cast_possible_truncation, reason = "a number from 0 to 1")]
            let quality = (1.0 / (1.0 + (-power).exp())) as f32;
            quality
        })
    };
    (0..TURNS).map(turn).collect()
}

#[derive(Clone, Copy, Default)]
struct Outcome {
    quality: f64,
    nanos: i64,
}

/// Tokens that the provider of each target has cached.
type Cached = HashMap<String, u64>;

fn play(policy: Policy, lambda: f32, prefix: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let settings = Turn {
        lambda,
        ..Turn::default()
    };
    let models = TARGETS.map(model);
    for seed in 0..CONVERSATIONS {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let key = SessionKey::of(["a", "h"]);
        let mut cached = Cached::new();
        let mut first: Option<String> = None;
        for (at, quality) in (0..).zip(conversation(seed)) {
            let prompt_tokens = prefix + at * TURN_TOKENS;
            let need = Need {
                prompt_tokens,
                ..Need::default()
            };
            let all: Vec<_> = models
                .iter()
                .cloned()
                .map(|model| Candidate::new(model, &need, None, Cap::default()))
                .collect();
            let eligible: Vec<_> = all.iter().collect();
            let found = sessions.find("h", key, now, settings.ttl);
            let request = turn::TurnContext {
                quality: &quality,
                prompt_tokens,
                is_continuation: false,
                session: found
                    .session
                    .as_ref()
                    .filter(|_| matches!(policy, Policy::Turn)),
                expired_model: None,
            };
            let by_price = || turn::choose(&eligible, &[], &request, &settings).unwrap().0;
            let chosen = match (policy, &first) {
                (Policy::Dearest, _) => eligible[3],
                (Policy::Stick, Some(first)) => {
                    let mut all = eligible.iter();
                    all.find(|one| one.model.id == *first).unwrap()
                }
                _ => by_price(),
            };
            first.get_or_insert_with(|| chosen.model.id.clone());
            let before = found.session.map(|session| session.model);
            let before = before.and_then(|id| models.iter().find(|model| model.id == id));
            let turn = pending_turn(key, prompt_tokens, before.map(|model| model.quality_tier));
            sessions.remember("h", &turn, &chosen.model, now);
            let known = cached.insert(chosen.model.id.clone(), prompt_tokens);
            let cost = chosen.cost_with_cached(prompt_tokens, known.unwrap_or(0));
            outcome.nanos += cost.nanos();
            outcome.quality += f64::from(chosen.quality(&quality));
        }
    }
    outcome
}

/// The cost of reaching 95 % of the quality of the most expensive target, as a share of that target's cost.
fn cost_at_95(policy: Policy, prefix: u64) -> f64 {
    let top = play(Policy::Dearest, 0.0, prefix);
    #[expect(clippy::cast_precision_loss, reason = "a share of two sums")]
    let share = |outcome: Outcome| {
        let cost = outcome.nanos as f64 / top.nanos as f64;
        (outcome.quality / top.quality, cost)
    };
    // Quality falls as `lambda` rises, so the cheapest setting that is good enough is found by bisection.
    let at = |step: u8| share(play(policy, f32::from(step) / 50.0, prefix));
    let (mut good, mut bad) = (0, LAMBDA_STEPS);
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if at(middle).0 >= 0.95 {
            good = middle;
        } else {
            bad = middle;
        }
    }
    let ((quality, cost), (below, cheaper)) = (at(good), at(bad));
    assert!(
        quality >= 0.95 && below < 0.95,
        "{policy:?}: {quality} and {below}"
    );
    cheaper + (cost - cheaper) * (0.95 - below) / (quality - below)
}

#[test]
fn a_turn_costs_no_more_than_staying_or_list_prices() {
    for prefix in [500, 4_000, 20_000] {
        let policies = [Policy::Turn, Policy::Stick, Policy::ListPrice];
        let [turn, stick, list] = policies.map(|policy| cost_at_95(policy, prefix));
        println!("prefix {prefix}: turn {turn:.3}, stick {stick:.3}, list price {list:.3}");
        // With a short prefix there is little to gain from caches, and switching less often has a small cost.
        let better = stick.min(list) + if prefix < 1_000 { 0.01 } else { 0.0 };
        assert!(
            turn <= better,
            "prefix {prefix}: turn {turn:.3}, stick {stick:.3}, list price {list:.3}"
        );
    }
}
