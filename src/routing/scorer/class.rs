//! Classes of words and signs, as small numbers. The hand-crafted features are counts of these.

use std::ops::RangeInclusive;

use super::word_lists::WordLists;

/// Words that indicate the kind of task, by kind. A word belongs to one kind only.
pub(super) const WORDS: [(&str, &[&str]); 13] = [
    ("how", &["how"]),
    ("how much", &["many", "much"]),
    ("question words", &["which", "what", "who", "when", "where"]),
    ("explanation", &["why", "explain", "describe"]),
    (
        "negation",
        &["not", "except", "false", "incorrect", "never", "no"],
    ),
    (
        "conditions",
        &[
            "if", "then", "else", "suppose", "assume", "let", "given", "assuming",
        ],
    ),
    (
        "derivation",
        &[
            "prove",
            "proof",
            "theorem",
            "show",
            "derive",
            "find",
            "calculate",
            "compute",
            "determine",
            "evaluate",
            "solve",
        ],
    ),
    (
        "program words",
        &[
            "def", "return", "function", "class", "import", "for", "in", "while", "print", "int",
            "self", "assert",
        ],
    ),
    (
        "quantities",
        &[
            "each", "every", "per", "total", "left", "twice", "half", "times", "more", "than",
            "less",
        ],
    ),
    (
        "first and second person",
        &["i", "my", "you", "your", "we", "me"],
    ),
    (
        "third person",
        &["he", "she", "his", "her", "they", "their"],
    ),
    (
        "judgement",
        &[
            "statement",
            "statements",
            "true",
            "following",
            "best",
            "most",
            "likely",
            "correct",
        ],
    ),
    (
        "writing",
        &[
            "write",
            "create",
            "generate",
            "give",
            "list",
            "summarize",
            "translate",
            "rewrite",
        ],
    ),
];
pub(super) const ARTICLES: (&str, &[&str]) = ("articles", &["the", "of", "a", "an", "to", "is"]);

pub(super) const SIGNS: [(&str, &str); 17] = [
    ("?", "?"),
    ("$", "$"),
    ("\\", "\\"),
    ("{}", "{}"),
    ("()", "()"),
    ("[]", "[]"),
    ("=<>", "=<>"),
    ("+*/^", "+*/^"),
    ("-", "-–−"),
    ("%", "%"),
    (",", ","),
    ("quotes", "\"'`“”"),
    ("_", "_"),
    (":", ":"),
    ("|", "|"),
    ("#", "#"),
    ("ends of sentences", ".!;"),
];

/// The lists of [`WORDS`], then the articles.
static KINDS: WordLists = {
    let (mut lists, mut at): ([&[&str]; KINDS_OF_WORDS], _) = ([ARTICLES.1; _], 0);
    while at < WORDS.len() {
        lists[at] = WORDS[at].1;
        at += 1;
    }
    WordLists::new(&lists)
};
const KINDS_OF_WORDS: usize = WORDS.len() + 1;

// Classes are numbered in this order: kinds of words, words in no list, numbers, families of signs, other signs.
const OTHER_WORD: u8 = KINDS_OF_WORDS as u8;
pub(super) const NUMBER: u8 = OTHER_WORD + 1;
const FIRST_SIGN: u8 = NUMBER + 1;
const OTHER_SIGN: u8 = FIRST_SIGN + SIGNS.len() as u8;
/// A power of two above the number of classes, so that counting needs no bounds check.
const CLASSES: usize = 64;

pub(super) fn of_word(hash: u64) -> u8 {
    // Adds a bit for `OTHER_WORD`, so that a word in no list gets that class.
    let lists = KINDS.of(hash) | 1 << OTHER_WORD;
    lists.trailing_zeros() as u8
}

/// The class of each ASCII sign; the few others are searched for.
static FAMILIES: [u8; 128] = {
    let (mut table, mut family) = ([OTHER_SIGN; 128], 0);
    while family < SIGNS.len() {
        let signs = SIGNS[family].1.as_bytes();
        let mut at = 0;
        while at < signs.len() {
            if signs[at].is_ascii() {
                table[signs[at] as usize] = FIRST_SIGN + family as u8;
            }
            at += 1;
        }
        family += 1;
    }
    table
};

/// Range of the signs in families that are not ASCII; signs outside of it need no search.
const OTHERS: RangeInclusive<char> = '–'..='−';

pub(super) fn of_sign(sign: char) -> u8 {
    if let Some(class) = FAMILIES.get(sign as usize) {
        return *class;
    }
    if !OTHERS.contains(&sign) {
        return OTHER_SIGN;
    }
    let family = SIGNS.iter().position(|(_, signs)| signs.contains(sign));
    family.map_or(OTHER_SIGN, |family| FIRST_SIGN + family as u8)
}

/// The number of tokens of each class.
pub(super) struct Classes([usize; CLASSES]);

impl Default for Classes {
    fn default() -> Self {
        Self([0; CLASSES])
    }
}

impl Classes {
    pub(crate) fn add(&mut self, class: u8) {
        self.0[usize::from(class) % CLASSES] += 1;
    }

    pub(crate) fn words(&self) -> usize {
        self.0[..=usize::from(OTHER_WORD)].iter().sum()
    }

    /// Counts of words by list.
    pub(crate) fn kinds(&self) -> &[usize] {
        &self.0[..KINDS_OF_WORDS]
    }

    pub(crate) fn numbers(&self) -> usize {
        self.0[usize::from(NUMBER)]
    }

    pub(crate) fn signs(&self) -> &[usize] {
        &self.0[usize::from(FIRST_SIGN)..][..SIGNS.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::{super::hash, *};

    #[test]
    fn every_word_has_one_kind() {
        let lists = WORDS.iter().map(|(_, list)| *list).chain([ARTICLES.1]);
        for (kind, list) in lists.enumerate() {
            for word in list {
                assert_eq!(KINDS.of(hash::word(word)), 1 << kind, "{word}");
                assert_eq!(usize::from(of_word(hash::word(word))), kind, "{word}");
            }
        }
        assert_eq!(of_word(hash::word("aardvark")), OTHER_WORD);
        assert!(usize::from(OTHER_SIGN) < CLASSES);
    }

    #[test]
    fn signs_are_in_families() {
        for (family, (_, signs)) in (0..).zip(SIGNS) {
            for sign in signs.chars() {
                assert_eq!(of_sign(sign), FIRST_SIGN + family, "{sign}");
            }
        }
        assert_eq!(of_sign('@'), OTHER_SIGN);
        assert_eq!(of_sign('€'), OTHER_SIGN);
    }
}
