//! Quality and cost of routing rules over four tiers at four prices.

use crate::scorer::TIERS;

/// Dollars per million tokens.
pub const PRICES: [f64; TIERS] = [0.2, 0.8, 2.0, 5.0];
/// Assumed output tokens of a response, for its cost.
const ANSWER: f64 = 300.0;

/// A prompt: the expected quality of each tier, the measured quality, and the length in tokens.
#[derive(Clone, Copy)]
pub struct Case {
    pub expected: [f32; TIERS],
    pub quality: [f32; TIERS],
    pub tokens: f64,
}

/// Quality and cost, each as a share of those of the top tier alone.
#[derive(Clone, Copy)]
pub struct Outcome {
    pub quality: f64,
    pub cost: f64,
}

/// The outcome of a rule on the cases.
pub fn play(cases: &[Case], mut choose: impl FnMut(&Case) -> usize) -> Outcome {
    let (mut quality, mut cost, mut top_quality, mut top_cost) = (0.0, 0.0, 0.0, 0.0);
    for case in cases {
        let tier = choose(case);
        quality += f64::from(case.quality[tier]);
        cost += PRICES[tier] * (case.tokens + ANSWER);
        top_quality += f64::from(case.quality[TIERS - 1]);
        top_cost += PRICES[TIERS - 1] * (case.tokens + ANSWER);
    }
    Outcome {
        quality: quality / top_quality,
        cost: cost / top_cost,
    }
}

/// The tier with the highest expected quality less `lambda` times its price.
pub fn worth(expected: &[f32; TIERS], lambda: f64) -> usize {
    let value = |tier: usize| f64::from(expected[tier]) - lambda * PRICES[tier];
    (0..TIERS).fold(0, |best, tier| {
        if value(tier) > value(best) {
            tier
        } else {
            best
        }
    })
}

/// The cheapest tier whose expected quality is within `delta` of the best.
pub fn near(expected: &[f32; TIERS], delta: f32) -> usize {
    let best = expected.iter().copied().fold(0.0, f32::max);
    let tier = expected.iter().position(|quality| *quality >= best - delta);
    tier.unwrap_or(TIERS - 1)
}

/// The tier by difficulty, which is 1 less the mean expected quality of the two weakest tiers.
pub fn cut(expected: &[f32; TIERS], cuts: &[f32; 3]) -> usize {
    let difficulty = 1.0 - f32::midpoint(expected[0], expected[1]);
    cuts.iter().filter(|cut| difficulty >= **cut).count()
}

/// The cheapest cuts that reach this quality.
pub fn best_cuts(cases: &[Case], quality: f64) -> [f32; 3] {
    let at = |step: u8| f32::from(step) * 0.05;
    let mut best = ([0.0, 0.0, 0.0], 1.0);
    for low in 0..=20 {
        for middle in low..=20 {
            for high in middle..=20 {
                let cuts = [at(low), at(middle), at(high)];
                let outcome = play(cases, |case| cut(&case.expected, &cuts));
                if outcome.quality >= quality && outcome.cost < best.1 {
                    best = (cuts, outcome.cost);
                }
            }
        }
    }
    best.0
}

/// The cost at which a family of rules reaches `quality`, interpolated linearly between its members.
pub fn cost_at(quality: f64, mut outcomes: Vec<Outcome>) -> f64 {
    outcomes.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    let pair = outcomes
        .windows(2)
        .find(|pair| pair[0].quality < quality && pair[1].quality >= quality);
    pair.map_or(1.0, |pair| {
        let along = (quality - pair[0].quality) / (pair[1].quality - pair[0].quality);
        pair[0].cost + (pair[1].cost - pair[0].cost) * along
    })
}

/// The cost of the cheapest random mix of two tiers that reaches `quality`.
pub fn coin(cases: &[Case], quality: f64) -> f64 {
    let tiers: Vec<Outcome> = (0..TIERS).map(|tier| play(cases, |_| tier)).collect();
    let mut best = 1.0;
    for low in &tiers {
        for high in tiers.iter().filter(|high| high.quality >= quality) {
            if low.quality < quality {
                let along = (quality - low.quality) / (high.quality - low.quality);
                best = f64::min(best, low.cost + (high.cost - low.cost) * along);
            }
        }
    }
    best
}
