//! Scoring a prompt allocates nothing once a thread has scored a similar one.
//!
//! A binary of its own with one test, because the allocator counts the allocations of every thread.

use std::{alloc::System, hint::black_box};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tollgate::routing::Scorer;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Short prompts, prompts of about 4 KB and 100 KB, and as many that are not ASCII.
fn prompts() -> Vec<String> {
    let sentences = [
        "Prove that the sum of two even integers is even; don't skip a step.",
        "Объясните, почему небо голубое, и приведите 2 примера — naïve ones, too.",
        "Write `fn main() { let x = [1, 2, 3]; }` so that it prints 3.14 == π?",
        "为什么天空是蓝色的？ なぜ空は青いのですか。 Straße, ΑΒΓ, 1½ €",
        "Hello! Incomprehensibilities antidisestablishmentarianism, please. Thanks!",
    ];
    (0..200)
        .map(|at| {
            let sentence = sentences[at % sentences.len()];
            let size = [0, 300, 4 << 10, 100 << 10][at / sentences.len() % 4];
            let text = sentence.repeat(size / sentence.len() + 1);
            format!("{at} {text}")
        })
        .collect()
}

#[test]
fn scoring_allocates_nothing_after_the_first_time() {
    let (prompts, scorer) = (prompts(), Scorer::embedded());
    let score_all = || {
        for prompt in &prompts {
            black_box(scorer.score_with_embedding(black_box(prompt)));
        }
    };
    score_all();
    let region = Region::new(ALLOCATOR);
    score_all();
    let change = region.change();
    assert_eq!(change.allocations, 0, "{change:?}");
    assert_eq!(change.reallocations, 0, "{change:?}");
}
