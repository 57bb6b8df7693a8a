//! Figures for routing between a weak and a strong model: how much of the gap between them a ranking recovers.
//!
//! APGR is the mean share of the gap recovered, over all shares of calls to the strong model; CPT(50 %) and CPT(80 %)
//! are the shares of calls that recover that much of it. The curve has ten equal bins with linear interpolation, like
//! the published figures.

use crate::data::mixed;

#[derive(Clone, Copy)]
pub struct Figures {
    pub apgr: f64,
    pub cpt50: f64,
    pub cpt80: f64,
}

/// A prompt: its rank score (higher means that the strong model is needed) and the scores of both models.
#[derive(Clone, Copy)]
pub struct Case {
    pub score: f64,
    pub weak: f64,
    pub strong: f64,
}

pub fn figures(cases: &[Case]) -> Figures {
    let mut ranked = cases.to_vec();
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
    let count = ranked.len();
    let gap: f64 = ranked.iter().map(|case| case.strong - case.weak).sum();
    let mut recovered = vec![0.0];
    for case in &ranked {
        recovered.push(recovered[recovered.len() - 1] + (case.strong - case.weak) / gap);
    }
    let points: Vec<(f64, f64)> = (0..=10)
        .map(|bin| count * bin / 10)
        .map(|calls| (calls as f64 / count as f64, recovered[calls]))
        .collect();
    let area = |pair: &[(f64, f64)]| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0;
    let reach = |share: f64| {
        let pair = points.windows(2).find(|pair| pair[1].1 >= share);
        pair.map_or(100.0, |pair| {
            let along = (share - pair[0].1) / (pair[1].1 - pair[0].1);
            100.0 * (pair[0].0 + (pair[1].0 - pair[0].0) * along)
        })
    };
    Figures {
        apgr: points.windows(2).map(area).sum(),
        cpt50: reach(0.5),
        cpt80: reach(0.8),
    }
}

/// The 95 % bootstrap interval of APGR.
pub fn interval(cases: &[Case]) -> (f64, f64) {
    let draw = |sample: u64| {
        let mut state = sample;
        let picked: Vec<Case> = cases
            .iter()
            .map(|_| {
                state = mixed(state);
                cases[(state % cases.len() as u64) as usize]
            })
            .collect();
        figures(&picked).apgr
    };
    let mut all: Vec<f64> = (0..400).map(draw).collect();
    all.sort_by(f64::total_cmp);
    (all[10], all[389])
}
