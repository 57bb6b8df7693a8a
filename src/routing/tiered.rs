//! Chooses a target of the quality tier that fits the difficulty of the request, and the fallbacks if it fails.

use super::{
    candidate::{Candidate, Need, cheapest},
    decision::Reason,
};
use crate::catalog::Tiered;

/// How many tiers a request can go up after failures.
const MAX_UP: usize = 2;

/// The difficulty of a text, from 0 to 1.
pub(crate) fn difficulty(quality: &[f32; 4]) -> f32 {
    1.0 - f32::midpoint(quality[0], quality[1])
}

/// The tier of a request, and the reason for it.
pub(crate) fn tier(quality: &[f32; 4], need: &Need, settings: &Tiered) -> (u8, Reason) {
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

/// The cheapest candidate of the nearest tier at or above `tier`, otherwise of the highest tier below it.
pub(crate) fn choose<'a>(eligible: &[&'a Candidate], tier: u8) -> Option<&'a Candidate> {
    let tiers = || eligible.iter().map(|one| one.tier());
    let above = tiers().filter(|one| *one >= tier).min();
    let found = above.or_else(|| tiers().max())?;
    of_tier(eligible, found)
}

fn of_tier<'a>(eligible: &[&'a Candidate], tier: u8) -> Option<&'a Candidate> {
    let members = eligible.iter().copied();
    cheapest(members.filter(|one| one.tier() == tier))
}

/// Models to try in this order if `chosen` fails: up to two tiers up, then one tier down, so that requests are still
/// served while the large models fail.
pub(crate) fn fallbacks<'a>(eligible: &[&'a Candidate], chosen: &Candidate) -> Vec<&'a Candidate> {
    let mut tiers: Vec<_> = eligible.iter().map(|one| one.tier()).collect();
    tiers.sort_unstable();
    tiers.dedup();
    let up = tiers.iter().filter(|one| **one > chosen.tier());
    let down = tiers.iter().rev().find(|one| **one < chosen.tier());
    let steps = up.take(MAX_UP).chain(down);
    steps.filter_map(|tier| of_tier(eligible, *tier)).collect()
}
