//! Tables of cases for each router, and properties that hold for all of them.

mod golden;
mod turns;

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::{
    Chosen, RoutingRequest,
    candidate::{Candidate, Cap, Need, Rejection},
    choose, cost,
    decision::Reason,
    knowledge::Knowledge,
    scorer::{Embedding, Scorer, Scores},
    semantic,
    sessions::{PendingTurn, Session, SessionKey, SessionLookup, Sessions},
    tiered, turn,
};
use crate::catalog::{Catalog, Cost, Model, Router, Semantic, SemanticRoute, Tiered, Turn};

/// Targets of the quality tiers 1 to 4.
const TARGETS: [&str; 4] = ["svc-native-fast", "svc-pro", "svc-standard", "svc-basic"];
const HARD: [f32; 4] = [0.1, 0.3, 0.6, 0.9];
const EASY: [f32; 4] = [0.95, 0.96, 0.97, 0.98];

static KNOWLEDGE: LazyLock<Knowledge> =
    LazyLock::new(|| Knowledge::new(&Catalog::built_in(), None));

fn model(id: &str) -> Arc<Model> {
    Catalog::built_in().find(id).unwrap().clone()
}

fn candidates(need: &Need, rejected: [Option<Rejection>; 4]) -> Vec<Candidate> {
    let all = TARGETS.into_iter().zip(rejected);
    all.map(|(id, rejected)| Candidate::new(model(id), need, rejected, Cap::default()))
        .collect()
}

fn all() -> Vec<Candidate> {
    let need = Need {
        prompt_tokens: 1_000,
        ..Need::default()
    };
    candidates(&need, [None; 4])
}

fn scores(quality: [f32; 4]) -> Scores {
    let domains = [0.0; 11];
    Scores { quality, domains }
}

#[test]
fn the_catalog_and_the_scorer_know_the_same_domains() {
    assert_eq!(crate::catalog::DOMAINS, super::scorer::DOMAINS);
}

#[test]
fn unmet_requirements_reject_a_target() {
    let mut small = (*model("svc-pro")).clone();
    small.context_length = 2_000;
    small.max_tools = 2;
    small.features = vec!["streaming".into(), "tools".into()];
    let small = Arc::new(small);
    let none = Need::default;
    let rest = Some(Rejection::Unhealthy);
    let long = Need {
        prompt_tokens: 1_500,
        ..none()
    };
    let cap = |max_tokens, is_raised| Cap {
        max_tokens: Some(max_tokens),
        is_raised,
    };
    for (cap, expected) in [
        (Cap::default(), None),
        (cap(500, false), None),
        (cap(501, false), Some(Rejection::Context)),
        (cap(500, true), Some(Rejection::MinOutput)),
        (cap(501, true), Some(Rejection::Context)),
    ] {
        let found = Candidate::new(small.clone(), &long, None, cap);
        assert_eq!(found.rejected, expected, "{cap:?}");
    }
    // An unhealthy target may be used as a last resort; one whose minimum is above the budget may not.
    let unhealthy = Candidate::new(small.clone(), &none(), rest, cap(500, true));
    assert_eq!(unhealthy.rejected, Some(Rejection::MinOutput));
    for (need, in_service, expected) in [
        (none(), None, None),
        (Need { tools: 2, ..none() }, None, None),
        (Need { tools: 3, ..none() }, None, Some(Rejection::Tools)),
        (
            Need {
                json_schema: true,
                ..none()
            },
            None,
            Some(Rejection::JsonSchema),
        ),
        (
            Need {
                json_mode: true,
                ..none()
            },
            rest,
            Some(Rejection::JsonMode),
        ),
        (none(), rest, rest),
    ] {
        let found = Candidate::new(small.clone(), &need, in_service, Cap::default());
        assert_eq!(found.rejected, expected, "{need:?}");
    }
}

#[test]
fn cost_takes_the_cheapest_that_is_nearly_as_good() {
    let all = all();
    for (quality, give, expected) in [
        (EASY, 0.02, "svc-standard"),
        (EASY, 0.10, "svc-native-fast"),
        (HARD, 0.10, "svc-basic"),
        (HARD, 0.31, "svc-standard"),
        (HARD, 1.0, "svc-native-fast"),
        ([0.9, 0.2, 0.2, 0.2], 0.0, "svc-native-fast"),
        ([0.2, 0.2, 0.9, 0.2], 0.0, "svc-standard"),
    ] {
        let eligible: Vec<_> = all.iter().collect();
        let (chosen, reason) = cost::choose(&eligible, &quality, Cost { give }).unwrap();
        assert_eq!(chosen.model.id, expected, "{quality:?} {give}");
        assert_eq!(reason, Reason::CostOk);
    }
    let (_, reason) = cost::choose(&[&all[3]], &EASY, Cost::default()).unwrap();
    assert_eq!(reason, Reason::CostOnlyFit);
}

#[test]
fn tiers_are_cut_by_difficulty_and_have_floors() {
    let settings = Tiered::default();
    let both = Need {
        tools: 1,
        json_schema: true,
        ..Need::default()
    };
    let long = Need {
        prompt_tokens: 32_001,
        ..Need::default()
    };
    let plain = Need::default();
    let quality = |easy: f32| [easy, easy, 1.0, 1.0];
    for (easy, need, expected) in [
        (0.9, &plain, (1, Reason::TierScore)),
        (0.75, &plain, (2, Reason::TierScore)),
        (0.5, &plain, (3, Reason::TierScore)),
        (0.3, &plain, (4, Reason::TierScore)),
        (0.9, &both, (2, Reason::TierFloorTools)),
        (0.9, &long, (2, Reason::TierFloorContext)),
        (0.3, &long, (4, Reason::TierScore)),
    ] {
        assert_eq!(
            tiered::tier(&quality(easy), need, &settings),
            expected,
            "{easy}"
        );
    }
}

#[test]
fn an_empty_tier_is_replaced_by_the_nearest() {
    let all = all();
    let some = |tiers: &[u8]| -> Vec<&Candidate> {
        all.iter()
            .filter(|one| tiers.contains(&one.tier()))
            .collect()
    };
    for (there, wanted, expected, fallbacks) in [
        (&[1, 2, 3, 4][..], 1, 1, &[2, 3][..]),
        (&[1, 2, 3, 4], 2, 2, &[3, 4, 1]),
        (&[1, 2, 3, 4], 4, 4, &[3]),
        (&[1, 4], 2, 4, &[1]),
        (&[1, 2], 4, 2, &[1]),
        (&[3], 1, 3, &[]),
    ] {
        let eligible = some(there);
        let chosen = tiered::choose(&eligible, wanted).unwrap();
        assert_eq!(chosen.tier(), expected, "{there:?} {wanted}");
        let next = tiered::fallbacks(&eligible, chosen);
        let next: Vec<_> = next.iter().map(|one| one.tier()).collect();
        assert_eq!(next, fallbacks, "{there:?} {wanted}");
    }
}

fn semantic_settings() -> Semantic {
    let route = |name: &str, domain: &str, exemplar: &str, model: &str| SemanticRoute {
        name: name.into(),
        domains: vec![domain.into()],
        exemplars: vec![exemplar.into()],
        models: vec![model.into()],
        threshold: 0.5,
    };
    Semantic {
        routes: vec![
            route(
                "sums",
                "mathematics",
                "add up these numbers",
                "svc-standard",
            ),
            route("refunds", "law", "I want my money back", "svc-basic"),
        ],
        default: vec!["svc-pro".into()],
        confidence: 0.35,
    }
}

#[test]
fn a_route_is_found_by_its_examples_then_by_its_domain() {
    let settings = semantic_settings();
    let read = |text: &String| Scorer::embedded().embedding(text);
    let mut math = scores(EASY);
    math.domains[0] = 0.6;
    let mut unsure = scores(EASY);
    unsure.domains[0] = 0.34;
    let mut general = math;
    general.domains[10] = 0.7;
    let mut nearly = scores(EASY);
    nearly.domains[5] = 0.33;
    for (text, scores, expected) in [
        (
            "i want my money back!",
            math,
            (Some("refunds"), Reason::SemExemplar),
        ),
        ("What is 2 + 2?", math, (Some("sums"), Reason::SemDomain)),
        ("What is 2 + 2?", unsure, (None, Reason::SemDefault)),
        ("", unsure, (None, Reason::SemDefault)),
        // The most likely domain can be one without a route.
        ("What is 2 + 2?", general, (None, Reason::SemDefault)),
        // Similarity below the threshold still counts in favour of the route.
        (
            "I want a refund for my order",
            nearly,
            (Some("refunds"), Reason::SemDomain),
        ),
    ] {
        let embedding = Scorer::embedded().embedding(text);
        let examples = settings.routes.iter();
        let examples = examples.map(|route| route.exemplars.iter().map(read).collect());
        let examples: Vec<Vec<Embedding>> = examples.collect();
        let (route, reason) = semantic::route(&scores, &embedding, &examples, &settings);
        assert_eq!(
            (route.map(|one| one.name.as_str()), reason),
            expected,
            "{text}"
        );
    }
    let all = all();
    let eligible: Vec<_> = all.iter().collect();
    let sums = settings.routes.first();
    let pick = |eligible: &[&Candidate], route| {
        let found = semantic::choose(eligible, route, Reason::SemDomain, &settings);
        let (chosen, reason) = found.unwrap();
        (chosen.model.id.clone(), reason)
    };
    assert_eq!(
        pick(&eligible, sums),
        ("svc-standard".into(), Reason::SemDomain)
    );
    assert_eq!(
        pick(&eligible, None),
        ("svc-pro".into(), Reason::SemDefault)
    );
    assert_eq!(
        pick(&eligible[..2], sums),
        ("svc-pro".into(), Reason::SemDefault),
        "the models of the route are not eligible"
    );
    assert_eq!(
        pick(&eligible[..1], sums),
        ("svc-native-fast".into(), Reason::SemDefault)
    );
}

fn pending_turn(key: SessionKey, tokens: u64, before: Option<u8>) -> PendingTurn {
    PendingTurn {
        key,
        settings: Turn {
            sessions: 3,
            ..Turn::default()
        },
        scores: scores(HARD),
        prompt_tokens: tokens,
        after_tool: false,
        before,
    }
}

/// A conversation of two turns served by `id`; if `down`, after a stronger model.
fn session(id: &str, tokens: u64, down: bool) -> Session {
    let (sessions, now) = (Sessions::default(), Instant::now());
    let (key, model) = (SessionKey::of(["a", "h"]), model(id));
    for _ in 0..2 {
        let turn = pending_turn(key, tokens, down.then_some(9));
        sessions.remember("h", &turn, &model, now);
    }
    let found = sessions.find("h", key, now, Duration::from_mins(5));
    found.session.unwrap()
}

#[test]
fn a_turn_weighs_its_current_cost() {
    let all = all();
    let eligible: Vec<_> = all.iter().collect();
    let on_pro = session("svc-pro", 1_000, false);
    let on_basic = session("svc-basic", 0, false);
    let went_down = session("svc-standard", 0, true);
    let now = |quality, session| turn::TurnContext {
        quality,
        prompt_tokens: 1_000,
        is_continuation: false,
        expired_model: None,
        session,
    };
    // The gain of switching is below the hysteresis.
    let close: [f32; 4] = [0.5, 0.500, 0.560, 0.5];
    for (case, expected, reason) in [
        (now(&EASY, None), "svc-native-fast", Reason::TurnFirst),
        (now(&HARD, None), "svc-basic", Reason::TurnFirst),
        (
            turn::TurnContext {
                expired_model: Some("svc-pro"),
                ..now(&EASY, None)
            },
            "svc-native-fast",
            Reason::TurnIdleReset,
        ),
        (now(&EASY, Some(&on_pro)), "svc-pro", Reason::TurnStayCache),
        (
            now(&HARD, Some(&on_pro)),
            "svc-basic",
            Reason::TurnSwitchGain,
        ),
        (now(&close, Some(&on_pro)), "svc-pro", Reason::TurnStayCache),
        (
            now(&EASY, Some(&on_basic)),
            "svc-native-fast",
            Reason::TurnSwitchGain,
        ),
        (
            now(&EASY, Some(&went_down)),
            "svc-standard",
            Reason::TurnStayCache,
        ),
        (now(&HARD, Some(&on_pro)), "svc-pro", Reason::TurnLockTool),
        (
            turn::TurnContext {
                expired_model: Some("svc-standard"),
                ..now(&EASY, None)
            },
            "svc-standard",
            Reason::TurnLockTool,
        ),
        (
            turn::TurnContext {
                is_continuation: true,
                ..now(&HARD, Some(&on_basic))
            },
            "svc-basic",
            Reason::TurnContinuation,
        ),
    ] {
        let callers = match reason {
            Reason::TurnLockTool => &eligible[..],
            _ => &[],
        };
        let found = turn::choose(&eligible, callers, &case, &Turn::default()).unwrap();
        assert_eq!((found.0.model.id.as_str(), found.1), (expected, reason));
    }
    let locked = now(&HARD, Some(&on_pro));
    let rest = [&all[0]];
    let found = turn::choose(&rest, &rest, &locked, &Turn::default()).unwrap();
    assert_eq!(
        found.0.model.id, "svc-native-fast",
        "the other one is not eligible"
    );
}

#[test]
fn a_short_text_is_a_continuation_in_any_script() {
    for (text, expected) in [
        ("go on", true),
        (" and then?\n", true),
        ("go on with it", false),
        ("続けてください", true),
        (
            "素数が無限に存在することを証明し、その証明の各段階を説明してください",
            false,
        ),
        ("x=1;for(let i=0;i<99;i++){x=x*i+7;console.log(x)}", false),
    ] {
        assert_eq!(turn::is_continuation(text), expected, "{text}");
    }
}

#[test]
fn sessions_expire_and_the_oldest_are_evicted_first() {
    let (sessions, now) = (Sessions::default(), Instant::now());
    let key = |n: u32| SessionKey::of(["a", "h", &n.to_string()]);
    let ttl = Duration::from_mins(5);
    let model = model("svc-pro");
    let remember = |hybrid: &str, n, now| {
        sessions.remember(hybrid, &pending_turn(key(n), 7, None), &model, now);
    };
    for n in 0..5 {
        remember("h", n, now);
        remember("h", 0, now);
    }
    assert_eq!(sessions.count(), 3);
    let known = |n| sessions.find("h", key(n), now, ttl).session.is_some();
    assert_eq!([0, 1, 2, 3, 4].map(known), [true, false, false, true, true]);
    let later = sessions.find("h", key(0), now + ttl + Duration::from_secs(1), ttl);
    assert!(later.session.is_none() && later.expired_model.as_deref() == Some("svc-pro"));
    // A tool's output belongs to the turn in which the tool was called.
    let down = pending_turn(key(0), 7, Some(9));
    sessions.remember("h", &down, &model, now);
    for (after_tool, since) in [(true, 0), (true, 0), (false, 1), (true, 1)] {
        let turn = PendingTurn {
            after_tool,
            ..pending_turn(key(0), 7, None)
        };
        sessions.remember("h", &turn, &model, now);
        let found = sessions.find("h", key(0), now, ttl).session.unwrap();
        assert_eq!(found.turns_since_downgrade(), since);
    }
    // Each hybrid has its own sessions, and those older than a day are evicted.
    remember("other", 9, now);
    assert_eq!(sessions.count(), 4);
    remember("h", 7, now + Duration::from_hours(25));
    assert_eq!(sessions.count(), 2);
    assert_ne!(SessionKey::of(["a", "bc"]), SessionKey::of(["ab", "c"]));
}

fn any_router() -> impl Strategy<Value = Router> {
    prop_oneof![
        (0.0_f32..1.0).prop_map(|give| Router::Cost(Cost { give })),
        Just(Router::Tiered(Tiered::default())),
        Just(Router::Semantic(semantic_settings())),
        Just(Router::Turn(Turn::default())),
    ]
}

fn any_rejection() -> impl Strategy<Value = Option<Rejection>> {
    prop_oneof![
        2 => Just(None),
        1 => Just(Some(Rejection::Disabled)),
        1 => Just(Some(Rejection::NotEntitled)),
        1 => Just(Some(Rejection::MinOutput)),
        1 => Just(Some(Rejection::Unserved)),
        1 => Just(Some(Rejection::Unhealthy)),
    ]
}

prop_compose! {
    fn any_found()(
        there in any::<bool>(), was_idle in any::<bool>(), model in 0..4_usize,
        tokens in 0..100_000_u64, down in any::<bool>(),
    ) -> SessionLookup {
        let session = there.then(|| session(TARGETS[model], tokens, down));
        SessionLookup { session, expired_model: (was_idle && !there).then(|| TARGETS[model].to_owned()) }
    }
}

proptest! {
    /// Equal requests get equal decisions, and every target that may be used can serve the request.
    #[test]
    fn a_choice_is_deterministic_and_eligible(
        router in any_router(),
        text in "[a-z0-9(){} ]{0,150}",
        prompt_tokens in 0..2_000_000_u64,
        tools in 0..200_usize,
        rejected in prop::array::uniform4(any_rejection()),
        after_tool in any::<bool>(),
        found in any_found(),
    ) {
        let need = Need {
            prompt_tokens,
            tools,
            ..Need::default()
        };
        let candidates = candidates(&need, rejected);
        let request = RoutingRequest { text: &text, need: &need, after_tool, found: &found };
        let hybrid = model("svc-hybrid-cost");
        let choice = || choose(&hybrid, &router, &request, &candidates, &KNOWLEDGE);
        let (one, other) = (choice(), choice());
        let shown = |chosen: &Option<Chosen>| {
            chosen.as_ref().map(|one| serde_json::to_string(&one.decision).unwrap())
        };
        prop_assert_eq!(shown(&one), shown(&other));
        let rejected: Vec<_> = candidates.iter().map(|one| one.rejected).collect();
        // Eligible candidates are chosen first, then unhealthy ones.
        let order = [None, Some(Rejection::Unhealthy)];
        let wanted = order.into_iter().find(|one| rejected.contains(one));
        let able = |rejected: &Option<Rejection>| wanted == Some(*rejected);
        prop_assert_eq!(one.is_some(), rejected.iter().any(able));
        let Some(one) = one else { return Ok(()) };
        let mut targets = vec![one.target.clone()];
        targets.extend(one.fallbacks.iter().cloned());
        for target in &targets {
            let candidate = candidates.iter().find(|other| other.model.id == target.id);
            let rejected = candidate.unwrap().rejected;
            // The output of a tool goes to the model that called it.
            let called = one.decision.reason == Reason::TurnLockTool && rejected.is_none();
            prop_assert!(called || able(&rejected), "{}", target.id);
        }
        let all_unhealthy = wanted == Some(Some(Rejection::Unhealthy));
        let lost = found.session.as_ref().is_some_and(|session| {
            let of = candidates.iter().find(|one| one.model.id == session.model);
            !able(&of.unwrap().rejected)
        });
        let lost = lost && matches!(router, Router::Turn(_));
        let kept = one.decision.reason == Reason::TurnLockTool;
        let fell_back = one.decision.reason == Reason::FallbackHealth;
        prop_assert_eq!(fell_back, (all_unhealthy || lost) && !kept);
        prop_assert!(one.decision.estimated_saving.nanos() >= 0);
    }

    /// A harder request never gets a lower tier.
    #[test]
    fn tiers_rise_with_difficulty(
        quality in prop::array::uniform4(0.0_f32..1.0),
        less in 0.0_f32..1.0,
        prompt_tokens in 0..100_000_u64,
    ) {
        let settings = Tiered::default();
        let need = Need { prompt_tokens, ..Need::default() };
        let harder = quality.map(|one| one * less);
        let tier = |quality| tiered::tier(quality, &need, &settings).0;
        prop_assert!(tier(&harder) >= tier(&quality));
        let all = all();
        let eligible: Vec<_> = all.iter().collect();
        let chosen = |quality| tiered::choose(&eligible, tier(quality)).unwrap().tier();
        prop_assert!(chosen(&harder) >= chosen(&quality));
    }
}
