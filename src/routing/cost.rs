//! Chooses the cheapest target whose expected quality is at most `give` below that of the best.

use super::{
    candidate::{Candidate, cheapest},
    decision::Reason,
};
use crate::catalog::Cost;

pub(crate) fn choose<'a>(
    eligible: &[&'a Candidate],
    quality: &[f32; 4],
    settings: Cost,
) -> Option<(&'a Candidate, Reason)> {
    let qualities = eligible.iter().map(|one| one.quality(quality));
    let best = qualities.fold(f32::MIN, f32::max);
    let good = eligible
        .iter()
        .copied()
        .filter(|one| one.quality(quality) >= best - settings.give);
    let reason = match eligible {
        [_] => Reason::CostOnlyFit,
        _ => Reason::CostOk,
    };
    Some((cheapest(good)?, reason))
}
