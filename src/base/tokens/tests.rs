use std::collections::BTreeMap;

use proptest::prelude::*;
use tiktoken_rs::CoreBPE;

use super::{
    Sender, estimate_part, estimate_tokens, merge, pieces,
    table::Merges,
    tally::{MERGE_BUDGET, Tally},
    vocabulary::Vocabulary,
};

fn tokenizers() -> [(&'static str, &'static CoreBPE); 2] {
    [
        ("o200k", tiktoken_rs::o200k_base_singleton()),
        ("cl100k", tiktoken_rs::cl100k_base_singleton()),
    ]
}

/// Splits and merges a text without fast paths, as a tokenizer does.
fn count(mut text: &str, piece: fn(&str) -> usize, merges: Merges) -> usize {
    let mut tokens = 0;
    while !text.is_empty() {
        let (first, rest) = text.split_at(piece(text));
        tokens += merge::count(merges, first.as_bytes());
        text = rest;
    }
    usize::try_from(tokens).unwrap()
}

fn is_never_below(text: &str) -> Result<(), TestCaseError> {
    let estimate = usize::try_from(estimate_tokens(text)).unwrap();
    for (name, tokenizer) in tokenizers() {
        let counted = tokenizer.count_ordinary(text);
        prop_assert!(
            estimate >= counted,
            "{estimate} estimated, {counted} counted by {name}: {text:?}"
        );
    }
    Ok(())
}

/// Texts composed of pieces that are difficult for a pre-tokenizer.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        // Words, and characters next to words.
        6 => r" ?[a-z]{1,12}",
        4 => r"[A-Z][a-z]{0,8}| ?[A-Za-z]{1,20}| [A-Z]{1,6}",
        2 => r"(dog|it|we|IT|don)['’](s|t|re|ve|m|ll|d|S|LL|ſ|x|)",
        3 => r"[ \t\r\n]{1,6}| {1,40}|(\r\n){1,9}|(\n\t){1,9}",
        3 => r"[!-/:-@\[-`{-~]{1,5}\n?/?",
        2 => r"[0-9]{1,9}|[0-9a-f]{8}|[A-Za-z0-9+/]{4,40}",
        2 => r"\PC{1,6}",
        2 => r"[\x00-\x7f]{1,8}",
        2 => r"[а-яА-ЯёЁ]{1,12} ?|[一-龥]{1,30}|[ぁ-ヿ]{1,9}|[가-힣]{1,6} ?|[ا-ي]{1,9}[ً-ْ]?|[क-ह]{1,3}[ा-ौ्]",
        1 => r"(\p{M}|\p{Lt}|\p{Lm}|\p{N}|\p{Zs}|\p{So}|\p{Cf}){1,4}",
        1 => r"[αβγΑΒΓ]{1,8}|[ก-๎]{1,12}|[😀-🙏]{1,3}|👩‍👩‍👧‍👦|🇫🇷|é|é",
        1 => r"\p{Any}{1,4}",
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_estimate_is_never_below_what_tokenizers_count(text in texts()) {
        is_never_below(&text)?;
    }

    #[test]
    fn splitting_and_merging_agrees_with_tokenizers(text in texts()) {
        let counted = count(&text, pieces::o200k, Vocabulary::O200k.merges());
        prop_assert_eq!(counted, tokenizers()[0].1.count_ordinary(&text), "o200k: {:?}", text);
        let counted = count(&text, pieces::cl100k, Vocabulary::Cl100k.merges());
        prop_assert_eq!(counted, tokenizers()[1].1.count_ordinary(&text), "cl100k: {:?}", text);
    }

    #[test]
    fn a_long_pre_token_is_merged_as_tokenizers_do(text in "[a-e]{65,400}|[一-三]{50,100}|([a-z]{1,9}[一-十]){20,40}") {
        let counted = count(&text, pieces::cl100k, Vocabulary::Cl100k.merges());
        prop_assert_eq!(counted, tokenizers()[1].1.count_ordinary(&text), "{:?}", text);
    }
}

/// Runs of one and two characters in various lengths up to some hundred: tokens are often such runs.
#[test]
fn the_estimate_is_never_below_on_runs_and_alternations() {
    let characters = [
        " ", "\n", "\r\n", "\t", "\n\t", " \n", "\u{a0}", "\u{3000}", "a", "A", "aA", "é", "'",
        "=", "-", "/", "\n/", "0", "٣", "½", "\0", "\u{7f}", "\u{301}", "字", "😀", "'s",
        "\u{feff}", "的 ", "x\n", ". ", "\u{2028}",
    ];
    for character in characters {
        for times in [1, 2, 3, 4, 5, 17, 64, 90, 300] {
            for end in ["", "x", "\n "] {
                let text = character.repeat(times) + end;
                is_never_below(&text).unwrap();
            }
        }
    }
    // Longer than the longest pre-token that is merged.
    is_never_below(&"a".repeat(5_000)).unwrap();
}

/// Compares the estimate with tokenizers for text in many languages: never lower, and for prose hardly higher.
#[test]
fn the_estimate_is_near_what_tokenizers_count() {
    let samples = include_str!("../../../tests/tokenizers/samples.json");
    let samples: BTreeMap<String, Vec<String>> = serde_json::from_str(samples).unwrap();
    let mut texts: Vec<_> = samples
        .into_iter()
        .map(|(name, texts)| (name, texts.join("\n\n")))
        .collect();
    for (name, text) in [
        (
            "documentation",
            include_str!("../../../docs/ARCHITECTURE.md"),
        ),
        ("code", include_str!("../../wire/stream_normalizer.rs")),
        (
            "JSON",
            include_str!("../../../tests/clients/package-lock.json"),
        ),
    ] {
        texts.push((name.into(), text.into()));
    }
    for (name, text) in texts {
        let estimate = usize::try_from(estimate_tokens(&text)).unwrap();
        let counts = tokenizers().map(|(_, tokenizer)| tokenizer.count_ordinary(&text));
        let most = counts.into_iter().max().unwrap();
        assert!(estimate >= most, "{name}: {estimate} for {counts:?}");
        assert!(
            estimate * 100 <= most * 110,
            "{name}: {estimate} for {counts:?}"
        );
        if matches!(name.as_str(), "English" | "documentation") {
            let least = counts.into_iter().min().unwrap();
            assert!(
                estimate * 100 <= least * 115,
                "{name}: {estimate} for {counts:?}"
            );
        }
    }
}

/// Without a merge budget bytes are counted, and that count is not cached.
#[test]
fn text_beyond_the_merge_budget_is_counted_in_bytes() {
    let word = " qxzjkwv";
    assert_eq!(Tally::with_budget(word, word.len() - 1).o200k, 8);
    let merged = Tally::of(word).o200k;
    assert!(merged < 8, "{merged}");
    // The budget is enough for two words in two vocabularies.
    let text = format!("{word}bq{word}bx{word}by");
    let tally = Tally::with_budget(&text, 4 * (word.len() + 2));
    assert!(
        tally.o200k > 10 && tally.o200k < text.len() as u64,
        "{}",
        tally.o200k
    );
    assert_eq!(Tally::of(&"a".repeat(5_000)).o200k, 5_000);
}

/// Texts of many lengths, sent repeatedly by two senders.
#[test]
fn cached_counts_are_those_of_a_new_count() {
    let text = include_str!("../../../docs/ARCHITECTURE.md");
    for round in 0..3 {
        for sender in ["one", "another"] {
            for (length, start) in (100..1_500).step_by(7).zip((0..).step_by(13)) {
                let Some(part) = text.get(start..start + length) else {
                    continue;
                };
                let tokens = estimate_part(Sender::new(sender), part, &mut 0);
                assert_eq!(tokens, estimate_tokens(part), "{round}: {part}");
            }
        }
    }
}

/// A count in bytes, made after the merge budget was used up, is not cached: a request with budget counts the text again.
#[test]
fn counts_in_bytes_are_not_cached() {
    let text = " qxzjkwv".repeat(20);
    let sender = Sender::new("one");
    let in_bytes = estimate_part(sender, &text, &mut { MERGE_BUDGET });
    assert_eq!(in_bytes, text.len() as u64);
    let tokens = estimate_part(sender, &text, &mut 0);
    assert!(tokens < in_bytes, "{tokens}");
    // Now it is cached, and needs no budget.
    assert_eq!(estimate_part(sender, &text, &mut { MERGE_BUDGET }), tokens);
}
