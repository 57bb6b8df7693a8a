//! Hand-crafted features: lengths, numbers, kinds of signs, kinds of words.

use super::{
    class::{self, ARTICLES, Classes, SIGNS, WORDS},
    math::ln_1p,
    token::{Kind, Token},
};

const GENERAL: [&str; 14] = [
    "base",
    "length",
    "words",
    "tokens",
    "letters per word",
    "long words",
    "numbers",
    "share of numbers",
    "longest number",
    "sentences",
    "words per sentence",
    "different words",
    "other scripts",
    "options",
];
pub(crate) const HAND: usize = GENERAL.len() + SIGNS.len() + WORDS.len() + 2;

/// The name of a feature, for explanations.
pub(super) fn name(feature: usize) -> &'static str {
    let names = GENERAL
        .into_iter()
        .chain(SIGNS.map(|(name, _)| name))
        .chain(WORDS.map(|(name, _)| name))
        .chain([ARTICLES.0, "far from usual length"]);
    names.into_iter().nth(feature).unwrap_or("unknown")
}

/// Counts from one pass over the tokens, without branches on their kind, which would be unpredictable.
#[derive(Default)]
struct Tally {
    letters: usize,
    long: usize,
    longest_number: usize,
    foreign: usize,
    options: usize,
    length: usize,
    classes: Classes,
}

impl Tally {
    fn of(tokens: &[Token]) -> Self {
        let mut tally = Self::default();
        for token in tokens {
            let (length, class) = (token.len(), token.class);
            let (word, number) = (class < class::NUMBER, class == class::NUMBER);
            tally.classes.add(class);
            tally.length += length + 1;
            tally.letters += usize::from(word) * token.letters as usize;
            tally.long += usize::from(word) * usize::from(length >= 9);
            tally.foreign += usize::from(!token.ascii());
            let number = usize::from(number) * length;
            tally.longest_number = tally.longest_number.max(number);
        }
        // `a.` or `b)`: an option of a multiple-choice question.
        let option = |pair: &&[Token]| {
            pair[0].len() == 1
                && pair[0].kind == Kind::Word
                && pair[1].len() == 1
                && matches!(pair[1].first, '.' | ')')
        };
        tally.options = tokens.windows(2).filter(option).count();
        tally
    }
}

fn ratio(part: usize, whole: usize) -> f32 {
    part as f32 / whole.max(1) as f32
}

pub(super) fn measure(tokens: &[Token], distinct: usize) -> [f32; HAND] {
    let tally = Tally::of(tokens);
    let tokens = tokens.len();
    let (words, numbers) = (tally.classes.words(), tally.classes.numbers());
    let signs = tally.classes.signs();
    let (question_marks, sentence_ends) = (signs[0], signs[SIGNS.len() - 1]);
    let sentences = question_marks + sentence_ends + 1;
    let general = [
        1.0,
        ln_1p(tally.length),
        ln_1p(words),
        ln_1p(tokens),
        ratio(tally.letters, words),
        ratio(tally.long, words),
        ln_1p(numbers),
        ratio(numbers, tokens),
        ratio(tally.longest_number.min(20), 1),
        ln_1p(sentences),
        ln_1p(words / sentences),
        ratio(distinct, tokens),
        ratio(tally.foreign, tokens),
        ln_1p(tally.options),
    ];
    let mut features = [0.0; HAND];
    let counted = signs.iter().chain(tally.classes.kinds());
    let counted = counted.map(|count| ln_1p(*count));
    let unusual = (ln_1p(tally.length) - 5.5) * (ln_1p(tally.length) - 5.5) / 4.0;
    let all = general.into_iter().chain(counted).chain([unusual]);
    for (feature, value) in features.iter_mut().zip(all) {
        *feature = value;
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_has_a_name() {
        assert_eq!(name(0), "base");
        assert_eq!(name(HAND - 1), "far from usual length");
    }
}
