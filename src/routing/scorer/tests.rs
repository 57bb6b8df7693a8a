//! Guards the scores against unnoticed changes, on prompts made up for these tests.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

fn prompts() -> Vec<String> {
    serde_json::from_str(include_str!("prompts.json")).unwrap()
}

/// The weakest tier whose quality is within 0.1 of the best.
fn tier(scores: &Scores) -> usize {
    let best = scores.quality.into_iter().fold(0.0, f32::max);
    scores
        .quality
        .iter()
        .position(|q| *q >= best - 0.1)
        .unwrap()
}

fn bits(scores: &Scores) -> Vec<u32> {
    let all = scores.quality.iter().chain(&scores.domains);
    all.map(|score| score.to_bits()).collect()
}

/// Scores are equal to the last bit on every machine and in every build, so that a logged decision can be reproduced.
#[test]
fn scores_match_the_snapshot() {
    let scorer = Scorer::embedded();
    let mut lines = format!("weights {}\n", scorer.version());
    for prompt in prompts() {
        let found = scorer.score(&prompt);
        let (domain, likely) = (0..DOMAINS.len())
            .map(|at| (DOMAINS[at], found.domains[at]))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap();
        let all = bits(&found).iter().fold(0_u64, |all, bits| {
            (all ^ u64::from(*bits)).wrapping_mul(0x0100_0000_01b3)
        });
        let start: String = prompt.chars().take(40).collect();
        _ = write!(lines, "{all:016x} tier {}", tier(&found) + 1);
        for quality in found.quality {
            _ = write!(lines, " {quality:.3}");
        }
        _ = writeln!(lines, " {domain} {likely:.2} {start:?}");
    }
    insta::assert_snapshot!("scores", lines);
}

#[test]
fn every_thread_scores_alike() {
    let prompts = prompts();
    let score = || -> Vec<_> {
        let scorer = Scorer::embedded();
        prompts.iter().map(|p| bits(&scorer.score(p))).collect()
    };
    let here = score();
    std::thread::scope(|scope| {
        let there: Vec<_> = (0..4).map(|_| scope.spawn(score)).collect();
        for scores in there {
            assert_eq!(scores.join().unwrap(), here);
        }
    });
}

#[test]
fn harder_tasks_ask_for_more() {
    let quality = |prompt: &str| Scorer::embedded().score(prompt).quality;
    let easy = quality("What colour do you get when you mix blue and yellow paint?");
    let hard = quality(
        "Let $f(x) = \\frac{ax+b}{cx+d}$ with $f(f(x)) = x$ for all $x$. Find the number of \
         ordered quadruples $(a, b, c, d)$ of integers between $-10$ and $10$.",
    );
    for tier in 0..TIERS {
        assert!(easy[tier] > hard[tier], "{easy:?} {hard:?}");
    }
    assert!(hard[3] - hard[0] > 0.1, "{hard:?}");
}

#[test]
fn courtesy_and_spacing_change_nothing() {
    let scorer = Scorer::embedded();
    for prompt in prompts()
        .iter()
        .filter(|prompt| prompt.split(' ').count() > 5)
    {
        let plain = bits(&scorer.score(prompt));
        for changed in [
            format!("Hello there! {prompt}"),
            format!("Hi, {prompt}"),
            format!("Good morning. Please {prompt}"),
            format!("Hello, could you help me with this: {prompt}"),
            format!("Good morning, could you please help me with this: {prompt}"),
            format!("{prompt} Thanks!"),
            format!("{prompt} please"),
            format!("{prompt} Thank you very much in advance."),
            prompt.replace(' ', " \t\n "),
            prompt.to_uppercase(),
        ] {
            assert_eq!(bits(&scorer.score(&changed)), plain, "{changed}");
        }
    }
}

#[test]
fn a_typo_rarely_changes_the_tier() {
    let scorer = Scorer::embedded();
    let (mut same, mut all) = (0, 0);
    for prompt in prompts() {
        // Swaps two letters of the longest word.
        let Some(word) = prompt.split_whitespace().max_by_key(|word| word.len()) else {
            continue;
        };
        let mut letters: Vec<char> = word.chars().collect();
        if letters.len() < 6 || prompt.split(' ').count() < 8 {
            continue;
        }
        letters.swap(2, 3);
        let changed = prompt.replacen(word, &letters.into_iter().collect::<String>(), 1);
        all += 1;
        same += u32::from(tier(&scorer.score(&prompt)) == tier(&scorer.score(&changed)));
    }
    assert!(all > 50 && same * 100 >= all * 85, "{same} of {all}");
}

#[test]
fn the_middle_of_a_long_prompt_is_not_read() {
    let scorer = Scorer::embedded();
    let (first, last) = ("first ".repeat(700), "last ".repeat(900));
    let long = |middle: &str| bits(&scorer.score(&format!("{first}{middle}{last}")));
    assert_eq!(long(&"é".repeat(5_000)), long(&"prove it ".repeat(90_000)));
}

/// A rule: there is no task, so any model can answer.
#[test]
fn any_model_can_answer_a_mere_courtesy() {
    let scorer = Scorer::embedded();
    for prompt in [
        "Hello",
        "hi there!",
        "Good morning!",
        "Thanks!",
        "Thank you very much.",
        "HELLO, how are you today?",
        "ok, thanks",
    ] {
        assert!(Scorer::is_courtesy(prompt), "{prompt}");
        let found = scorer.score(prompt);
        assert_eq!(
            found.quality.map(f32::to_bits),
            [1.0_f32.to_bits(); TIERS],
            "{prompt}"
        );
        assert_eq!(scorer.explain(prompt)[0].term, "courtesy");
    }
    for prompt in [
        "",
        "help",
        "Hello world program in C",
        "how well are you doing this",
        "How many are there in a day, please?",
        "Please help me with this: ++++[>++<-]",
    ] {
        assert!(!Scorer::is_courtesy(prompt), "{prompt}");
        let found = scorer.score(prompt);
        assert!(found.quality[0] < 1.0, "{prompt}");
    }
}

#[test]
fn texts_about_the_same_thing_are_similar() {
    let scorer = Scorer::embedded();
    let [refund, money_back, integral, nothing] = [
        "How do I get a refund for a damaged parcel?",
        "The package arrived broken and I want my money returned.",
        "Compute the integral of the logarithm from one to two.",
        "12 + 34 = ?",
    ]
    .map(|text| scorer.embedding(text));
    assert!((refund.similarity(&refund) - 1.0).abs() < 1e-6);
    let (same, other) = (refund.similarity(&money_back), refund.similarity(&integral));
    assert!(same > 0.2 && same > other + 0.2, "{same} {other}");
    assert!(
        nothing.similarity(&refund).abs() < 1e-6,
        "a text without words"
    );
}

#[test]
fn one_pass_gives_scores_and_embedding() {
    let scorer = Scorer::embedded();
    for prompt in prompts() {
        let (found, embedding) = scorer.score_with_embedding(&prompt);
        assert_eq!(bits(&found), bits(&scorer.score(&prompt)));
        assert_eq!(embedding, scorer.embedding(&prompt));
    }
}

#[test]
fn terms_add_up_to_the_score() {
    let scorer = Scorer::embedded();
    for prompt in prompts() {
        let terms = scorer.explain(&prompt);
        let found = scorer.score(&prompt);
        for tier in 0..TIERS {
            let sum: f32 = terms.iter().map(|term| term.quality[tier]).sum();
            let off = (sum.clamp(0.0, 1.0) - found.quality[tier]).abs();
            assert!(off < 1e-4, "{prompt}: {sum} {:?}", found.quality);
        }
    }
    let terms = scorer.explain("Prove that the square root of 3 is irrational.");
    assert!(
        terms.iter().any(|term| term.term == "\"prove\""),
        "{terms:?}"
    );
    assert!(terms.iter().any(|term| term.term == "meaning"), "{terms:?}");
}

#[test]
fn a_damaged_file_is_refused() {
    let good = Scorer::embedded().weights().encode();
    assert_eq!(good, include_bytes!("router.bin"));
    let refused = |file: &[u8]| Scorer::read(file).err().unwrap();
    assert_eq!(refused(b""), "this is not a file of router weights");
    assert_eq!(
        refused(b"PK\x03\x04...."),
        "this is not a file of router weights"
    );
    assert_eq!(refused(&good[..20]), "the router weights are cut short");
    assert_eq!(
        refused(&good[..good.len() - 1]),
        "the router weights are damaged: their checksum does not match"
    );
    let mut other = good.clone();
    other[8] += 1;
    assert_eq!(
        refused(&other),
        "the router weights are of another format than 2, the one this program reads"
    );
    let mut damaged = good.clone();
    damaged[good.len() / 2] ^= 1;
    assert_eq!(
        refused(&damaged),
        "the router weights are damaged: their checksum does not match"
    );
}

/// The checksum of the built-in weights is not verified at run time, so it is verified here.
#[test]
fn the_built_in_weights_have_a_valid_checksum() {
    let checked = Scorer::read(BUILT_IN).unwrap();
    assert_eq!(checked.version(), Scorer::embedded().version());
    assert!(checked.weights() == Scorer::embedded().weights());
}

/// A valid checksum does not mean that the content is usable.
#[test]
fn unusable_weights_are_refused() {
    let refused = |spoil: fn(&mut Weights)| {
        let mut weights = Scorer::embedded().weights().clone();
        spoil(&mut weights);
        Scorer::read(&weights.encode()).err().unwrap()
    };
    assert_eq!(
        refused(|weights| weights.hand[3] = f32::NAN),
        "the router weights contain a number that is not finite"
    );
    assert_eq!(
        refused(|weights| weights.rows.to_mut().truncate(10)),
        "the router weights are cut short"
    );
    assert_eq!(
        refused(|weights| weights.rows.to_mut().push(1)),
        "the router weights have extra bytes at the end"
    );
    assert_eq!(
        refused(|weights| weights.fingerprints.clear()),
        "the router weights have no vocabulary"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// The scores of any text are probabilities.
    #[test]
    fn any_text_is_scored(text in ".{0,300}", times in 1_usize..60) {
        let scores = Scorer::embedded().score(&text.repeat(times));
        for score in scores.quality.iter().chain(&scores.domains) {
            prop_assert!((0.0..=1.0).contains(score), "{scores:?}");
        }
        prop_assert!((scores.domains.iter().sum::<f32>() - 1.0).abs() < 1e-4);
    }

    #[test]
    fn case_and_spacing_change_nothing(words in prop::collection::vec("[a-zA-Zéß0-9.,?$]{1,9}", 1..40)) {
        let scorer = Scorer::embedded();
        let plain = words.join(" ");
        let spaced = format!("\n {} \t", words.join("  \r\n"));
        prop_assert_eq!(bits(&scorer.score(&plain)), bits(&scorer.score(&spaced)));
        prop_assert_eq!(bits(&scorer.score(&plain)), bits(&scorer.score(&plain.to_uppercase())));
    }
}
