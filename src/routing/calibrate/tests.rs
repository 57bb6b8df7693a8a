//! Calibration with labels for which the right result is known.

#![expect(
    clippy::float_cmp,
    clippy::cast_precision_loss,
    reason = "equal input gives exactly equal numbers, and label counts are small"
)]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    bench::{Bench, Quality},
    *,
};
use crate::catalog::{Cost, Tiered, Turn};

const COST: &str = "svc-hybrid-cost";
const TIERED: &str = "svc-hybrid-tiered";
const TURN: &str = "svc-hybrid-turn";
/// Targets of the three hybrids, from the cheapest to the most expensive.
const TARGETS: [&str; 6] = [
    "svc-native-flash",
    "svc-native-fast",
    "svc-native-light",
    "svc-pro",
    "svc-standard",
    "svc-basic",
];

/// Easy and hard prompts, each with different words.
fn prompts() -> Vec<String> {
    let texts: Vec<String> = serde_json::from_str(include_str!("../scorer/prompts.json")).unwrap();
    let twice = texts.iter().enumerate().flat_map(|(at, text)| {
        let harder =
            format!("{text} Prove the theorem number {at} and derive every integral of it.");
        [format!("{text} ({at})"), harder]
    });
    twice.collect()
}

/// A hash of a text.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn labels(score: impl Fn(&str, &str) -> f64) -> Vec<Label> {
    let label = |prompt: String| {
        let scores = TARGETS.map(|id| (id.to_owned(), score(&prompt, id)));
        Label {
            scores: BTreeMap::from(scores),
            prompt,
        }
    };
    prompts().into_iter().map(label).collect()
}

fn input<'a>(
    labels: &'a [Label],
    catalog: &'a Catalog,
    models: &'a [String],
) -> CalibrationInput<'a> {
    CalibrationInput {
        labels,
        catalog,
        scorer: Scorer::embedded(),
        models,
        quality: 0.95,
        heads: false,
        tool_tokens: 500,
    }
}

fn calibrated(labels: &[Label], quality: f64, heads: bool) -> Calibrated {
    let catalog = Catalog::built_in();
    calibrate(&CalibrationInput {
        quality,
        heads,
        ..input(labels, &catalog, &[])
    })
    .unwrap()
}

fn hybrid<'a>(report: &'a Report, id: &str) -> &'a Hybrid {
    let mut hybrids = report.hybrids.iter();
    hybrids.find(|one| one.model == id).unwrap()
}

fn expected(labels: &[Label]) -> Vec<Quality> {
    let prompts = labels.iter().map(|label| &label.prompt);
    prompts
        .map(|prompt| Scorer::embedded().score(prompt).quality)
        .collect()
}

fn bench(labels: &[Label], id: &str) -> Bench {
    let catalog = Catalog::built_in();
    let input = input(labels, &catalog, &[]);
    let fits = split::fitting_half(labels);
    super::bench(&input, catalog.find(id).unwrap(), &fits).unwrap()
}

#[test]
fn where_the_cheap_are_always_right_all_goes_to_them() {
    let report = calibrated(&labels(|_, _| 1.0), 0.95, false).report;
    assert_eq!(report.hybrids.len(), 3);
    for one in &report.hybrids {
        let after = one.all_labels.after;
        assert_eq!(after.quality, 1.0, "{one:?}");
        // The very hardest texts are never in the first tier, whatever the cuts; and no `lambda` outweighs a much
        // higher expected quality by a small difference in price.
        let cheapest = after.agreement > 0.95 || one.model == TURN;
        assert!(
            cheapest && after.cost < one.all_labels.before.cost,
            "{one:?}"
        );
        assert!(one.reached);
        assert_eq!(one.verdict, Verdict::Confirmed, "{one:?}");
        assert!(one.toml().contains(&one.after.0), "{}", one.toml());
    }
}

#[test]
fn where_only_the_dearest_is_right_all_goes_to_it() {
    let labels = labels(|_, id| f64::from(id == "svc-basic"));
    let report = calibrated(&labels, 0.95, false).report;
    let after = hybrid(&report, TIERED);
    assert_eq!(after.best_target, "svc-basic");
    assert!(after.reached);
    assert!(after.all_labels.after.quality >= 0.95, "{after:?}");
    assert!(after.all_labels.after.cost >= 0.95, "{after:?}");
    // All targets of this hybrid have the score 0.
    assert!(report.skipped.iter().any(|why| why.contains(COST)));
}

/// `svc-native-fast` and `-flash` are of the same tier and the former is more expensive, so no setting chooses it.
#[test]
fn an_unreachable_quality_is_reported_and_the_best_setting_taken() {
    let score = |_: &str, id: &str| match id {
        "svc-native-fast" => 1.0,
        "svc-pro" => 0.5,
        _ => 0.0,
    };
    let report = calibrated(&labels(score), 0.95, false).report;
    let cost = hybrid(&report, COST);
    assert!(!cost.reached);
    let labels = labels(score);
    let (bench, expected) = (bench(&labels, COST), expected(&labels));
    for at in 0..=100_u8 {
        let router = Router::Cost(Cost {
            give: f32::from(at) / 100.0,
        });
        let other = bench.measure(&bench.cases, &router, &expected);
        assert!(other.quality <= cost.all_labels.after.quality + 1e-9);
    }
}

/// A target is right exactly if it costs at least as much as the choice of the planted setting.
#[test]
fn a_planted_setting_is_found_again() {
    let all = labels(|_, _| 1.0);
    let expected = expected(&all);
    for (id, planted) in [
        (COST, Router::Cost(Cost { give: 0.18 })),
        (
            TURN,
            Router::Turn(Turn {
                lambda: 0.33,
                ..Turn::default()
            }),
        ),
        (
            TIERED,
            Router::Tiered(Tiered {
                cuts: [0.5, 0.6, 0.7],
                ..Tiered::default()
            }),
        ),
    ] {
        let bench = bench(&all, id);
        let mut planting = all.clone();
        for case in &bench.cases {
            let enough = case.cost(case.choice(&planted, &expected));
            for (target, candidate) in case.candidates.iter().enumerate() {
                let right = f64::from(case.cost(target) >= enough);
                let scores = &mut planting[case.label].scores;
                scores.insert(candidate.model.id.clone(), right);
            }
        }
        let report = calibrated(&planting, 1.0, false).report;
        let found = hybrid(&report, id);
        assert_eq!(found.all_labels.after.quality, 1.0, "{found:?}");
        let cost = bench.measure(&bench.cases, &planted, &expected).cost;
        assert!(found.all_labels.after.cost <= cost + 1e-9, "{found:?}");
        let numbers = |setting: &Setting| -> Vec<f64> {
            let numbers = setting.0.split(|c: char| !c.is_ascii_digit() && c != '.');
            numbers.filter_map(|number| number.parse().ok()).collect()
        };
        let (got, wanted) = (numbers(&found.after), numbers(&Setting::of(&planted)));
        assert_eq!(got.len(), wanted.len());
        for (got, wanted) in got.iter().zip(wanted) {
            assert!((got - wanted).abs() < 0.03, "{found:?}");
        }
        assert_eq!(found.verdict, Verdict::Confirmed, "{found:?}");
    }
}

/// Stronger models are right more often, but independently of the prompt. A random choice can look like a good one
/// occasionally.
#[test]
fn labels_unrelated_to_their_prompts_are_not_confirmed() {
    let mut confirmed = 0;
    for seed in 0..5_u64 {
        let score = |prompt: &str, id: &str| {
            let strength = TARGETS.iter().position(|one| *one == id).unwrap();
            let drawn = (hash(prompt) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            f64::from(drawn % 10 < 3 + strength as u64)
        };
        let report = calibrated(&labels(score), 0.8, false).report;
        for found in &report.hybrids {
            confirmed += usize::from(found.verdict == Verdict::Confirmed);
            let all_comments = found.toml().lines().all(|line| line.starts_with('#'));
            assert!(
                all_comments || found.verdict == Verdict::Confirmed,
                "{found:?}"
            );
        }
        assert_eq!(report.hybrids.len(), 3);
    }
    assert!(confirmed <= 3, "{confirmed} of 15");
}

#[test]
fn too_few_labels_are_refused_with_how_many_are_needed() {
    let (all, catalog) = (labels(|_, _| 1.0), Catalog::built_in());
    let refused = calibrate(&input(&all[..49], &catalog, &[])).err().unwrap();
    assert!(
        refused.contains("49 usable labels, and 50 are needed"),
        "{refused}"
    );
    let mut few = all.clone();
    for label in &mut few[40..] {
        label
            .scores
            .retain(|id, _| id != "svc-standard" && id != "svc-basic");
    }
    let models = [TIERED.to_owned()];
    let report = calibrate(&input(&few, &catalog, &models))
        .ok()
        .unwrap()
        .report;
    assert_eq!(
        report.hybrids[0].left_out,
        ["svc-native-standard", "svc-standard", "svc-basic"]
    );
    for label in &mut few {
        label.scores.retain(|id, _| id == "svc-pro");
    }
    let refused = calibrate(&input(&few, &catalog, &models)).err().unwrap();
    assert!(
        refused.contains("fewer than two of its targets"),
        "{refused}"
    );
    let same: Vec<_> = std::iter::repeat_n(all[0].clone(), 60).collect();
    let refused = calibrate(&input(&same, &catalog, &models)).err().unwrap();
    assert!(refused.contains("prompts of the same words"), "{refused}");
    for (id, why) in [
        ("svc-pro", "is no hybrid"),
        ("svc-hybrid-semantic", "has no threshold to fit"),
    ] {
        let models = [id.to_owned()];
        let refused = calibrate(&input(&all, &catalog, &models)).err().unwrap();
        assert!(refused.contains(why), "{refused}");
    }
}

/// The expected quality before clamping to 0..=1.
fn sums(prompt: &str) -> [f64; 4] {
    let terms = Scorer::embedded().explain(prompt);
    let mut sums = [0.0; 4];
    for term in terms {
        for (sum, part) in sums.iter_mut().zip(term.quality) {
            *sum += f64::from(part);
        }
    }
    sums
}

fn tier(id: &str) -> usize {
    usize::from(Catalog::built_in().find(id).unwrap().quality_tier) - 1
}

#[test]
fn a_linear_error_of_the_expectations_is_corrected() {
    let tiers: BTreeMap<_, _> = TARGETS.map(|id| (id, tier(id))).into();
    let bent = |sum: f64| 0.4 * sum + 0.3;
    let labels = labels(|prompt, id| bent(sums(prompt)[tiers[id]]).clamp(0.0, 1.0));
    let Calibrated { report, weights } = calibrated(&labels, 0.95, true);
    let heads = report.heads.unwrap();
    assert!(heads.better);
    assert!(heads.after.rms < heads.before.rms / 4.0, "{heads:?}");
    assert!(
        heads.after.calibration < heads.before.calibration / 4.0,
        "{heads:?}"
    );
    let read = Scorer::read(&weights.unwrap()).unwrap();
    assert_eq!(heads.weights.as_deref(), Some(read.version()));
    let mut off = 0.0;
    for prompt in prompts() {
        let (found, before) = (read.score(&prompt), Scorer::embedded().score(&prompt));
        assert_eq!(found.domains, before.domains, "{prompt}");
        for (head, sum) in sums(&prompt).into_iter().enumerate() {
            let line = heads.lines[head];
            let predicted = (sum * line.scale + line.offset).clamp(0.0, 1.0);
            let found = f64::from(found.quality[head]);
            assert!(
                (found - predicted).abs() < 1e-4,
                "{prompt}: {found} {predicted}"
            );
            off += (found - bent(sum)).abs();
        }
    }
    let mean = off / (4.0 * labels.len() as f64);
    assert!(mean < 0.02, "{mean}");
}

#[test]
fn right_expectations_stay_and_no_weights_are_made() {
    let tiers: BTreeMap<_, _> = TARGETS.map(|id| (id, tier(id))).into();
    let mut labels = labels(|prompt, id| sums(prompt)[tiers[id]]);
    let possible = |label: &Label| label.scores.values().all(|one| (0.0..=1.0).contains(one));
    labels.retain(possible);
    let Calibrated { report, weights } = calibrated(&labels, 0.95, true);
    assert!(!report.heads.unwrap().better);
    assert!(weights.is_none());
}

#[test]
fn few_labels_move_expectations_less() {
    let points = |number: usize| -> Vec<heads::Point> {
        let point = |at| heads::Point {
            tier: 1,
            expected: f64::from(u32::try_from(at % 10).unwrap()) / 10.0,
            score: 0.9,
        };
        (0..number).map(point).collect()
    };
    let moved = |number| {
        let line = heads::fit(&points(number))[1];
        (line.scale * 0.45 + line.offset - 0.45).abs()
    };
    assert!(moved(10) < moved(100) && moved(100) < moved(10_000));
    assert!((moved(10_000) - 0.45).abs() < 0.01);
    assert_eq!(heads::fit(&points(10))[0], heads::Line::default());
}

#[test]
fn equal_labels_give_equal_reports() {
    let score = |prompt: &str, id: &str| (hash(prompt) ^ hash(id)) as f64 / u64::MAX as f64;
    let mut labels = labels(score);
    let first = calibrated(&labels, 0.9, true);
    let again = calibrated(&labels, 0.9, true);
    assert_eq!(first.report, again.report);
    assert_eq!(first.weights, again.weights);
    labels.reverse();
    let backwards = calibrated(&labels, 0.9, false).report;
    let forwards = {
        labels.reverse();
        calibrated(&labels, 0.9, false).report
    };
    for (one, other) in forwards.hybrids.iter().zip(&backwards.hybrids) {
        assert_eq!(one.after, other.after);
        let halves = [one, other].map(|one| &one.held_out_half.after_setting);
        assert_eq!(halves[0], halves[1]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// A fitted setting reaches the required quality on its labels at the lowest cost; or none does, and it is the
    /// best.
    #[test]
    fn a_fitted_setting_is_good_enough_or_the_best(
        seed in any::<u64>(), goal in 0.5..1.0_f64, cuts in prop::array::uniform3(0_u8..=100),
    ) {
        let score = |prompt: &str, id: &str| {
            let drawn = (hash(prompt) ^ hash(id) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            f64::from(drawn >> 60 < 8)
        };
        let labels = labels(score);
        let expected = expected(&labels);
        for id in [COST, TIERED, TURN] {
            let bench = bench(&labels, id);
            let cases: Vec<_> = bench.cases.iter().collect();
            let fitted = fit::fit(&bench, &cases, &expected, goal);
            let measured = bench.measure(cases.iter().copied(), &fitted.router, &expected);
            prop_assert_eq!(fitted.reached, measured.quality >= goal - 1e-9);
            let at = |number: u8| f32::from(number) / 100.0;
            let mut sorted = cuts;
            sorted.sort_unstable();
            let other = match &bench.router {
                Router::Cost(_) => Router::Cost(Cost { give: at(cuts[0]) }),
                Router::Turn(turn) => Router::Turn(Turn { lambda: at(cuts[0]), ..*turn }),
                Router::Tiered(tiered) if sorted.is_sorted_by(|a, b| a < b) => {
                    Router::Tiered(Tiered { cuts: sorted.map(at), ..*tiered })
                }
                _ => continue,
            };
            let other = bench.measure(cases.iter().copied(), &other, &expected);
            if fitted.reached {
                let cheaper = other.quality >= goal && other.cost < measured.cost - 1e-9;
                prop_assert!(!cheaper, "{:?} {:?}", other, measured);
            } else {
                prop_assert!(other.quality <= measured.quality + 1e-9);
            }
        }
    }
}
