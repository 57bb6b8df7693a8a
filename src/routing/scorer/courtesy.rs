//! Finds courtesies (greetings, thanks, "please") at both ends of a prompt.

use std::ops::Range;

use super::{
    token::{Kind, Token},
    word_lists::WordLists,
};

/// Words with which a courtesy at the start begins.
const OPENERS: &[&str] = &[
    "hi",
    "hello",
    "hey",
    "dear",
    "greetings",
    "please",
    "kindly",
    "ok",
    "okay",
    "thanks",
    "thank",
];
/// Second words of a greeting: good morning, hello there.
const GREETED: &[&str] = &[
    "there",
    "morning",
    "afternoon",
    "evening",
    "day",
    "assistant",
    "everyone",
    "all",
    "sir",
    "madam",
    "friend",
    "you",
];
/// Words of which a courtesy at the end contains one.
const CLOSERS: &[&str] = &[
    "thanks",
    "thank",
    "cheers",
    "thx",
    "ty",
    "regards",
    "please",
    "appreciated",
    "appreciate",
];
/// Other words that may occur in a courtesy.
const FILLERS: &[&str] = &[
    "good", "so", "in", "advance", "best", "help", "me", "could", "can", "would", "i", "need",
    "with", "this", "very", "much", "a", "lot", "many", "it", "for", "your", "hope", "are",
    "doing", "well", "how", "today",
];
static LISTS: WordLists = WordLists::new(&[
    OPENERS,
    GREETED,
    CLOSERS,
    FILLERS,
    &["good"],
    &["help"],
    &["how"],
    &["are"],
]);
// The bit of each list.
const OPENER: u16 = 1;
const AFTER_GOOD: u16 = 1 << 1;
const CLOSER: u16 = 1 << 2;
const GOOD: u16 = 1 << 4;
const HELP: u16 = 1 << 5;
const HOW: u16 = 1 << 6;
const ARE: u16 = 1 << 7;
const ANY: u16 = u16::MAX;

/// The most tokens of a courtesy.
const MAX_TOKENS: usize = 12;
/// The most consecutive courtesies at one end.
const MAX_CLAUSES: usize = 4;

/// The range of tokens without the courtesies at both ends.
///
/// A separate clause ("Hello, could you help me with this:") is removed completely. If the task follows without a sign
/// in between ("please a short poem"), only the courtesy word is removed, because the others may belong to the task. A
/// prompt that is only a courtesy is not changed.
pub(super) fn without(tokens: &[Token]) -> (usize, usize) {
    let words = Words { tokens };
    let mut start = 0;
    for _ in 0..MAX_CLAUSES {
        match words.opening(start) {
            Some(after) if tokens.len() - after >= 2 => start = after,
            _ => break,
        }
    }
    let mut end = tokens.len();
    for _ in 0..MAX_CLAUSES {
        match words.closing(start, end) {
            Some(before) if before >= start + 2 => end = before,
            _ => break,
        }
    }
    (start, end)
}

/// Whether the prompt is only a short courtesy; `left` is the result of [`without`]. "How are you" is a courtesy, "how
/// many" is not.
pub(super) fn is_all(tokens: &[Token], left: Range<usize>) -> bool {
    let words = Words { tokens };
    let polite = |at| words.is(at, OPENER | CLOSER) || (at == 0 && words.opening(0).is_some());
    let fits = |at| {
        let asks = words.is(at, HOW) && !words.is(at + 1, ARE);
        !asks && (words.is(at, ANY) || words.mark(at, &['.', ',', '!', '?']))
    };
    left.len() <= MAX_TOKENS && left.clone().all(fits) && (0..tokens.len()).any(polite)
}

struct Words<'a> {
    tokens: &'a [Token],
}

impl Words<'_> {
    fn is(&self, at: usize, lists: u16) -> bool {
        let token = self.tokens.get(at);
        token.is_some_and(|t| t.kind == Kind::Word && LISTS.of(t.hash) & lists != 0)
    }

    fn mark(&self, at: usize, signs: &[char]) -> bool {
        let token = self.tokens.get(at);
        token.is_some_and(|t| t.kind == Kind::Mark && signs.contains(&t.first))
    }

    /// The end of the courtesy that begins at `start`, if one does.
    fn opening(&self, start: usize) -> Option<usize> {
        let good = self.is(start, GOOD) && self.is(start + 1, AFTER_GOOD);
        let opener = good || self.is(start, OPENER);
        let mut at = start;
        while at - start < MAX_TOKENS && self.is(at, ANY) {
            at += 1;
        }
        let signs = ['!', ',', '.', ':', '-', '?'];
        let apart = self.mark(at, &signs);
        let asks = apart && (start..at).any(|at| self.is(at, HELP));
        if !opener && !asks {
            return None;
        }
        if !apart {
            at = start + 1;
            while self.is(at, AFTER_GOOD) {
                at += 1;
            }
        }
        while self.mark(at, &signs) {
            at += 1;
        }
        Some(at)
    }

    /// The start of the courtesy that ends at `end`, if one does.
    fn closing(&self, start: usize, end: usize) -> Option<usize> {
        let mut last = end;
        while last > start && self.mark(last - 1, &['!', ',', '.']) {
            last -= 1;
        }
        let mut at = last;
        while at > start && last - at < MAX_TOKENS && self.is(at - 1, ANY) {
            at -= 1;
        }
        let first = (at..last).find(|at| self.is(*at, CLOSER))?;
        let apart = at > start && self.tokens[at - 1].kind == Kind::Mark;
        Some(if apart { at } else { first })
    }
}
