//! A snapshot of a thousand decisions. They must not depend on the build, the machine or the thread.

use std::{fmt::Write as _, sync::Arc, thread};

use super::{KNOWLEDGE, TARGETS, pending_turn};
use crate::{
    catalog::{Catalog, Model, Plan, Tier, Track},
    routing::{
        Candidate, Cap, Need, Rejection, RoutingRequest, SessionLookup, choose,
        sessions::{PendingTurn, SessionKey, Sessions},
    },
};

const HYBRIDS: [&str; 4] = [
    "svc-hybrid-semantic",
    "svc-hybrid-cost",
    "svc-hybrid-tiered",
    "svc-hybrid-turn",
];

/// 250 prompts: those of the scorer's tests, then pairs of them, then long ones.
fn prompts() -> Vec<String> {
    let texts = include_str!("../scorer/prompts.json");
    let texts: Vec<String> = serde_json::from_str(texts).unwrap();
    let pairs = texts.windows(2).map(|pair| pair.join("\n\n"));
    let long = texts.iter().map(|text| text.repeat(1 + 9_000 / text.len()));
    let more = pairs.step_by(4).take(45).chain(long.step_by(9));
    texts.iter().cloned().chain(more).take(250).collect()
}

fn plan(at: usize) -> Plan {
    let tiers = [Tier::Standard, Tier::Pro, Tier::Max];
    Plan::new(Track::Personal, tiers[at % tiers.len()]).unwrap()
}

/// The state of a conversation: a third of them are new, the others have an earlier turn.
fn found(catalog: &Catalog, at: usize) -> SessionLookup {
    if at.is_multiple_of(3) {
        return SessionLookup::default();
    }
    let (sessions, now) = (Sessions::default(), std::time::Instant::now());
    let (key, ttl) = (SessionKey::of(["a"]), std::time::Duration::from_mins(5));
    let scores = KNOWLEDGE.scorer().score("What is the capital of France?");
    let before = at.is_multiple_of(5).then_some(9);
    let turn = PendingTurn {
        scores,
        ..pending_turn(key, 700 * at as u64, before)
    };
    let model = catalog.find(TARGETS[at % TARGETS.len()]).unwrap();
    sessions.remember("h", &turn, model, now);
    sessions.find("h", key, now, ttl)
}

fn decide(catalog: &Catalog, hybrid: &Arc<Model>, at: usize, prompt: &str) -> String {
    let plan = plan(at);
    let need = Need {
        prompt_tokens: (prompt.len() / 4) as u64 + 900 * at as u64,
        tools: usize::from(at.is_multiple_of(7)),
        json_schema: at.is_multiple_of(14),
        ..Need::default()
    };
    let targets = hybrid.targets.iter().map(|id| catalog.find(id).unwrap());
    let candidates: Vec<_> = targets
        .map(|model| {
            let entitled = plan.includes(model.min_tier);
            let rejected = (!entitled).then_some(Rejection::NotEntitled);
            Candidate::new(model.clone(), &need, rejected, Cap::default())
        })
        .collect();
    let request = RoutingRequest {
        text: prompt,
        need: &need,
        after_tool: at.is_multiple_of(11),
        found: &found(catalog, at),
    };
    let router = hybrid.router.as_ref().unwrap();
    let chosen = choose(hybrid, router, &request, &candidates, &KNOWLEDGE).unwrap();
    let quality = chosen
        .scores
        .quality
        .map(|one| format!("{:08x}", one.to_bits()));
    let (decision, fallbacks) = (&chosen.decision, chosen.fallbacks.len());
    let domain = &decision.domain;
    format!(
        "{at} {} {} {} +{fallbacks} {} {:08x} {}",
        hybrid.id.trim_start_matches("svc-hybrid-"),
        chosen.target.id,
        decision.reason.as_str(),
        domain.name,
        domain.posterior.to_bits(),
        quality.join(" ")
    )
}

fn decisions() -> String {
    let catalog = Catalog::built_in();
    let mut all = String::new();
    for (at, prompt) in prompts().iter().enumerate() {
        for hybrid in HYBRIDS {
            let hybrid = catalog.find(hybrid).unwrap();
            writeln!(all, "{}", decide(&catalog, hybrid, at, prompt)).unwrap();
        }
    }
    all
}

#[test]
fn a_thousand_decisions_are_what_they_were() {
    let threads = [(); 3].map(|()| thread::spawn(decisions));
    let [first, others @ ..] = threads.map(|thread| thread.join().unwrap());
    assert_eq!(first.lines().count(), 1_000);
    for other in others {
        assert!(first == other, "another thread decides otherwise");
    }
    insta::assert_snapshot!(first);
}
