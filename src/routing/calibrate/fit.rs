//! Finds the cheapest setting of a router that is good enough.

use super::{
    super::tiered,
    bench::{Bench, Case, Quality},
    number::count,
};
use crate::catalog::{Cost, Router, Tiered, Turn};

/// The single number of a router is tried in steps of 1/200, cuts in steps of 1/100: finer steps would fit noise with
/// any realistic number of labels.
const NUMBER_STEPS: u16 = 200;
const STEPS: u16 = 100;

/// A setting, and whether it reaches the required quality.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fitted {
    pub router: Router,
    pub reached: bool,
}

/// Quality and cost of a setting, summed over the cases.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    quality: f64,
    cost: f64,
}

/// A setting that was tried.
struct Trial<S> {
    setting: S,
    total: Total,
    /// Distance from the current setting.
    distance: f64,
}

/// The cheapest setting with at least the share `goal` of the best target's quality on `cases`; if there is none, the
/// one with the highest quality.
pub(crate) fn fit(bench: &Bench, cases: &[&Case], quality: &[Quality], goal: f64) -> Fitted {
    let top: f64 = cases.iter().map(|case| case.scores[bench.best]).sum();
    let search = Search {
        required: goal * top,
        // Sums of equal scores in another order differ in the last digits.
        tolerance: 1e-9 * count(cases.len()),
    };
    match &bench.router {
        Router::Tiered(settings) => search.cuts(*settings, cases, quality),
        router => search.single_number(router, cases, quality),
    }
}

fn step(cut: u16) -> f32 {
    f32::from(cut) / f32::from(STEPS)
}

/// The router with its single number set to `to`; `None` if it has no single number.
fn with_number(router: &Router, to: f32) -> Option<Router> {
    match router {
        Router::Cost(_) => Some(Router::Cost(Cost { give: to })),
        Router::Turn(settings) => Some(Router::Turn(Turn {
            lambda: to,
            ..*settings
        })),
        Router::Tiered(_) | Router::Semantic(_) => None,
    }
}

/// The number of the router that is fitted.
fn number(router: &Router) -> f32 {
    match router {
        Router::Cost(settings) => settings.give,
        Router::Turn(settings) => settings.lambda,
        Router::Tiered(_) | Router::Semantic(_) => 0.0,
    }
}

struct Search {
    required: f64,
    tolerance: f64,
}

impl Search {
    fn reaches(&self, total: Total) -> bool {
        total.quality >= self.required - self.tolerance
    }

    /// Whether `one` is better: by enough quality first, then by cost, then by more quality, then by the smaller
    /// change. Without enough quality, more quality comes before cost.
    fn better<S>(&self, one: &Trial<S>, other: &Trial<S>) -> bool {
        let enough = [self.reaches(one.total), self.reaches(other.total)];
        if enough[0] != enough[1] {
            return enough[0];
        }
        let quality = one.total.quality - other.total.quality;
        let cost = one.total.cost - other.total.cost;
        let (finer, coarser) = (quality > self.tolerance, quality < -self.tolerance);
        let by_quality = finer.then_some(true).or(coarser.then_some(false));
        let by_cost = (cost < 0.0)
            .then_some(true)
            .or((cost > 0.0).then_some(false));
        let decided = if enough[0] {
            by_cost.or(by_quality)
        } else {
            by_quality.or(by_cost)
        };
        decided.unwrap_or(one.distance < other.distance)
    }

    /// Tries all values of the router's single number.
    fn single_number(&self, router: &Router, cases: &[&Case], quality: &[Quality]) -> Fitted {
        let mut best: Option<Trial<Router>> = None;
        for at in 0..=NUMBER_STEPS {
            let to = f32::from(at) / f32::from(NUMBER_STEPS);
            let Some(setting) = with_number(router, to) else {
                break;
            };
            let mut total = Total::default();
            for case in cases {
                total.add(case, case.choice(&setting, quality));
            }
            let trial = Trial {
                distance: f64::from((to - number(router)).abs()),
                setting,
                total,
            };
            if best.as_ref().is_none_or(|best| self.better(&trial, best)) {
                best = Some(trial);
            }
        }
        Fitted {
            reached: best.as_ref().is_some_and(|best| self.reaches(best.total)),
            router: best.map_or_else(|| router.clone(), |best| best.setting),
        }
    }

    /// Tries all combinations of the three cuts. The totals of a tier between two cuts are a difference of prefix sums.
    fn cuts(&self, settings: Tiered, cases: &[&Case], quality: &[Quality]) -> Fitted {
        let below = Tier::ALL.map(|tier| tier.below(settings, cases, quality));
        let end = usize::from(STEPS) + 1;
        let near = |cut: u16, at: usize| f64::from((step(cut) - settings.cuts[at]).abs());
        let mut best: Option<Trial<[u16; 3]>> = None;
        for a in 0..=STEPS {
            for b in a + 1..=STEPS {
                for c in b + 1..=STEPS {
                    let [i, j, k] = [a, b, c].map(usize::from);
                    let parts = [
                        below[0][i],
                        below[1][j].less(below[1][i]),
                        below[2][k].less(below[2][j]),
                        below[3][end].less(below[3][k]),
                    ];
                    let trial = Trial {
                        setting: [a, b, c],
                        total: Total {
                            quality: parts.iter().map(|part| part.quality).sum(),
                            cost: parts.iter().map(|part| part.cost).sum(),
                        },
                        distance: near(a, 0) + near(b, 1) + near(c, 2),
                    };
                    if best.as_ref().is_none_or(|best| self.better(&trial, best)) {
                        best = Some(trial);
                    }
                }
            }
        }
        let cuts = best.as_ref().map(|best| best.setting.map(step));
        Fitted {
            reached: best.is_some_and(|best| self.reaches(best.total)),
            router: Router::Tiered(Tiered {
                cuts: cuts.unwrap_or(settings.cuts),
                ..settings
            }),
        }
    }
}

/// A quality tier, counted from 0.
#[derive(Clone, Copy)]
struct Tier(usize);

impl Tier {
    const ALL: [Self; 4] = [Self(0), Self(1), Self(2), Self(3)];

    /// Prefix sums: the totals if this tier got all cases with a difficulty below each possible cut; the last entry is
    /// for all cases.
    fn below(self, settings: Tiered, cases: &[&Case], quality: &[Quality]) -> Vec<Total> {
        // Difficulty is from 0 to 1, so these cuts put every text into this tier, or into the one that a floor raises
        // it to.
        let cuts = [0, 1, 2].map(|cut| if cut < self.0 { 0.0 } else { 2.0 });
        let all = Router::Tiered(Tiered { cuts, ..settings });
        let end = usize::from(STEPS) + 1;
        let mut sums = vec![Total::default(); end + 1];
        for case in cases {
            let hard = tiered::difficulty(&quality[case.label]);
            let cell = (0..=STEPS).filter(|cut| hard >= step(*cut)).count();
            sums[cell].add(case, case.choice(&all, quality));
        }
        for at in 1..=end {
            let before = sums[at - 1];
            sums[at].quality += before.quality;
            sums[at].cost += before.cost;
        }
        sums
    }
}

impl Total {
    fn add(&mut self, case: &Case, chosen: usize) {
        self.quality += case.scores[chosen];
        self.cost += case.cost(chosen);
    }

    fn less(self, other: Self) -> Self {
        Self {
            quality: self.quality - other.quality,
            cost: self.cost - other.cost,
        }
    }
}
