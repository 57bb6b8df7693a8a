//! A target of the tier that fits how hard the request is, and whom to ask when it fails.

use super::{
    candidate::{Candidate, Need, cheapest},
    decision::Reason,
};
use crate::catalog::Tiered;

/// How often a failure makes a request go up a tier.
const MAX_UP: usize = 2;

/// How hard a text is, from 0 to 1.
pub fn difficulty(quality: &[f32; 4]) -> f32 {
    1.0 - f32::midpoint(quality[0], quality[1])
}

/// The tier a request belongs in, and what decided that.
pub fn tier(quality: &[f32; 4], need: &Need, settings: &Tiered) -> (u8, Reason) {
    let hard = difficulty(quality);
    let cuts = settings.cuts.iter().filter(|cut| hard >= **cut);
    let scored = 1 + u8::try_from(cuts.count()).unwrap_or(3);
    let floors = [
        (
            need.tools > 0 && need.json_schema,
            settings.tools_floor,
            Reason::TierFloorTools,
        ),
        (
            need.prompt_tokens > settings.context_tokens,
            settings.context_floor,
            Reason::TierFloorContext,
        ),
    ];
    let mut found = (scored, Reason::TierScore);
    for (applies, floor, reason) in floors {
        if applies && floor > found.0 {
            found = (floor, reason);
        }
    }
    found
}

/// The nearest tier from `tier` upwards that has anyone in it, else the nearest below.
pub fn choose<'a>(eligible: &[&'a Candidate], tier: u8) -> Option<&'a Candidate> {
    let tiers = || eligible.iter().map(|one| one.tier());
    let above = tiers().filter(|one| *one >= tier).min();
    let found = above.or_else(|| tiers().max())?;
    of_tier(eligible, found)
}

fn of_tier<'a>(eligible: &[&'a Candidate], tier: u8) -> Option<&'a Candidate> {
    let members = eligible.iter().copied();
    cheapest(members.filter(|one| one.tier() == tier))
}

/// Whom to ask in turn when `chosen` fails: up to two tiers up, then one tier down, so that a bad day
/// of the large models does not leave a request without an answer.
pub fn ladder<'a>(eligible: &[&'a Candidate], chosen: &Candidate) -> Vec<&'a Candidate> {
    let mut tiers: Vec<_> = eligible.iter().map(|one| one.tier()).collect();
    tiers.sort_unstable();
    tiers.dedup();
    let up = tiers.iter().filter(|one| **one > chosen.tier());
    let down = tiers.iter().rev().find(|one| **one < chosen.tier());
    let steps = up.take(MAX_UP).chain(down);
    steps.filter_map(|tier| of_tier(eligible, *tier)).collect()
}
