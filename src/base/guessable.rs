//! Estimates how hard a secret is to guess, for secrets that a person may choose.
//!
//! The estimate cannot tell random characters from a clever choice; it finds what people do choose: words, sequences,
//! and patterns that are repeated until they are long enough.

use std::collections::BTreeSet;

const MIN_CHARS: usize = 24;
/// Least entropy in bits: more than can be tried, also offline.
const MIN_BITS: f64 = 96.0;
/// The estimate stops here: the search for repeats takes quadratic time, and a longer secret has enough bits.
const MAX_CHARS: usize = 256;
/// A word of a language has about this many bits per character, also as part of a phrase of random words.
const BITS_IN_WORDS: f64 = 2.0;
/// Shorter runs of one case are frequent among random characters, unless there are separators around them.
const MIN_WORD: usize = 5;
/// Shorter repeats and sequences are frequent among random characters.
const MIN_PATTERN: usize = 4;

/// Whether the secret is too short, or has too few bits by the estimate. Secrets of `openssl rand -hex 16` and longer
/// ones pass.
pub(crate) fn is_guessable(secret: &str) -> bool {
    let chars: Vec<char> = secret.chars().take(MAX_CHARS).collect();
    chars.len() < MIN_CHARS || bits(&chars) < MIN_BITS
}

/// The estimated entropy. A repeat of earlier characters and a sequence such as `3456` count as one character.
fn bits(chars: &[char]) -> f64 {
    let (each, in_words) = (bits_of_a_random_char(chars), in_words(chars));
    let (mut bits, mut at) = (0.0, 0);
    while at < chars.len() {
        bits += if in_words[at] { BITS_IN_WORDS } else { each };
        let pattern = repeat(chars, at).max(sequence(chars, at));
        at += if pattern >= MIN_PATTERN { pattern } else { 1 };
    }
    bits
}

type IsOfKind = fn(&char) -> bool;

/// The bits of a character that was chosen at random: by the kinds of characters there are, and little more than by the
/// characters there are. The second bound is for secrets of few different characters.
fn bits_of_a_random_char(chars: &[char]) -> f64 {
    let kinds: [(u8, IsOfKind); 4] = [
        (10, char::is_ascii_digit),
        (26, |c| c.is_lowercase()),
        (26, |c| c.is_uppercase()),
        (10, |c| !c.is_alphanumeric()),
    ];
    let present = kinds.iter().filter(|(_, is)| chars.iter().any(is));
    let pool: u8 = present.map(|(size, _)| size).sum();
    let distinct = chars.iter().collect::<BTreeSet<_>>().len();
    let distinct = u16::try_from(distinct).unwrap_or(u16::MAX);
    let by_kinds = f64::from(pool.max(1)).log2();
    by_kinds.min(f64::from(distinct.max(1)).log2() + 1.5)
}

/// Which characters belong to words: runs of one case, perhaps after a capital, that are long or stand between
/// separators; and the separators beside them.
fn in_words(chars: &[char]) -> Vec<bool> {
    let is_separator = |at: usize| chars.get(at).is_some_and(|c| !c.is_alphanumeric());
    let mut found = vec![false; chars.len()];
    let mut start = 0;
    while start < chars.len() {
        let length = word(&chars[start..]);
        let end = start + length;
        let before = start > 0 && is_separator(start - 1);
        let after = is_separator(end);
        let stands_alone = (before || start == 0) && (after || end == chars.len());
        if length >= MIN_WORD || (length > 0 && stands_alone) {
            found[start - usize::from(before)..end + usize::from(after)].fill(true);
        }
        start = end.max(start + 1);
    }
    found
}

/// The length of a word at the start.
fn word(chars: &[char]) -> usize {
    let capitals = chars.iter().take_while(|c| c.is_uppercase()).count();
    let small = chars[capitals.min(1)..].iter();
    let small = small.take_while(|c| c.is_lowercase()).count();
    if small == 0 {
        capitals
    } else {
        capitals.min(1) + small
    }
}

/// How many characters from here on repeat earlier ones.
fn repeat(chars: &[char], at: usize) -> usize {
    let from = |start: usize| {
        let pairs = chars[start..].iter().zip(&chars[at..]);
        pairs.take_while(|(earlier, here)| earlier == here).count()
    };
    (0..at).map(from).max().unwrap_or(0)
}

/// How many characters from here on are equal, or each the next or the previous one of the alphabet.
fn sequence(chars: &[char], at: usize) -> usize {
    let step = |pair: &[char]| i64::from(u32::from(pair[1])) - i64::from(u32::from(pair[0]));
    let mut steps = chars[at..].windows(2).map(step);
    match steps.next() {
        Some(first @ -1..=1) => 2 + steps.take_while(|step| *step == first).count(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::is_guessable;

    #[test]
    fn what_people_choose_is_guessable() {
        for chosen in [
            "",
            "short",
            "0123456789abcdef",
            "0123456789abcdefghijklmnopqrstuvwxyz",
            "changeme-changeme-changeme-changeme",
            "operator-token-for-production",
            "correct horse battery staple",
            "TollgateProductionOperatorToken2026!",
            "P@ssw0rd-P@ssw0rd-P@ssw0rd-P@ssw0rd",
            "qwertyuiopasdfghjklzxcvbnm1234567890",
            "abcd1234efgh5678ijkl9012mnop",
            "at least sixteen characters",
            "make it with openssl rand -hex 32",
            "19840312-19840312-19840312-1984",
            &"a".repeat(1_000),
            &"x7Q".repeat(30),
            &"9fK2xQ7v".repeat(8),
            // Random, and too short.
            "9fK2xQ7vLr4TnB8wYc3Hd6Z",
        ] {
            assert!(is_guessable(chosen), "{chosen}");
        }
    }

    #[test]
    fn random_secrets_of_the_usual_forms_are_not() {
        for random in [
            // openssl rand -hex 16, openssl rand -base64 24, uuidgen
            "7c1f9a04e6b25d83d0487ae1936bf25c",
            "q3Zs0vK+8mXwTb1YhR7uLd/9eNfGc2Aj",
            "0b8f5c1e-93d7-4a62-b1f4-6ad2c97e8035",
            // Ten random words
            "lunar-crate-vivid-oboe-plank-stir-mocha-fender-quilt-zebra",
            "9 fK§2xQ7 vLr4T nB8wYc 3Hd6",
        ] {
            assert!(!is_guessable(random), "{random}");
        }
    }
}
