//! Greetings, thanks and pleases at either end of a prompt.

use std::ops::Range;

use super::{
    listed::Listed,
    token::{Kind, Token},
};

/// A courtesy at the start begins with one of these.
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
/// The second word of a greeting: good morning, hello there.
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
/// A courtesy at the end holds one of these.
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
/// What else a courtesy is made of.
const FILLERS: &[&str] = &[
    "good", "so", "in", "advance", "best", "help", "me", "could", "can", "would", "i", "need",
    "with", "this", "very", "much", "a", "lot", "many", "it", "for", "your", "hope", "are",
    "doing", "well", "how", "today",
];
static LISTED: Listed = Listed::new(&[
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

/// A longer run is no courtesy any more.
const LONGEST: usize = 12;
/// Courtesies that follow one another at one end.
const CLAUSES: usize = 4;

/// What is left between the courtesies: the first token and the one after the last.
///
/// A clause of its own ("Hello, could you help me with this:") goes whole. Where the task follows
/// without a sign between ("please a short poem"), only the word of courtesy goes, since the
/// others may belong to the task. A prompt that is nothing but courtesy is left as it is.
pub(super) fn without(tokens: &[Token]) -> (usize, usize) {
    let words = Words { tokens };
    let mut start = 0;
    for _ in 0..CLAUSES {
        match words.opening(start) {
            Some(after) if tokens.len() - after >= 2 => start = after,
            _ => break,
        }
    }
    let mut end = tokens.len();
    for _ in 0..CLAUSES {
        match words.closing(start, end) {
            Some(before) if before >= start + 2 => end = before,
            _ => break,
        }
    }
    (start, end)
}

/// Whether there is nothing but courtesy, and little of it: `left` is what [`without`] leaves. "How are
/// you" is one; "how many" is not.
pub(super) fn is_all(tokens: &[Token], left: Range<usize>) -> bool {
    let words = Words { tokens };
    let polite = |at| words.is(at, OPENER | CLOSER) || (at == 0 && words.opening(0).is_some());
    let fits = |at| {
        let asks = words.is(at, HOW) && !words.is(at + 1, ARE);
        !asks && (words.is(at, ANY) || words.mark(at, &['.', ',', '!', '?']))
    };
    left.len() <= LONGEST && left.clone().all(fits) && (0..tokens.len()).any(polite)
}

struct Words<'a> {
    tokens: &'a [Token],
}

impl Words<'_> {
    fn is(&self, at: usize, lists: u16) -> bool {
        let token = self.tokens.get(at);
        token.is_some_and(|t| t.kind == Kind::Word && LISTED.of(t.hash) & lists != 0)
    }

    fn mark(&self, at: usize, signs: &[char]) -> bool {
        let token = self.tokens.get(at);
        token.is_some_and(|t| t.kind == Kind::Mark && signs.contains(&t.first))
    }

    /// Where the courtesy that begins at `start` is over.
    fn opening(&self, start: usize) -> Option<usize> {
        let good = self.is(start, GOOD) && self.is(start + 1, AFTER_GOOD);
        let opener = good || self.is(start, OPENER);
        let mut at = start;
        while at - start < LONGEST && self.is(at, ANY) {
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

    /// Where the courtesy that is over at `end` begins.
    fn closing(&self, start: usize, end: usize) -> Option<usize> {
        let mut last = end;
        while last > start && self.mark(last - 1, &['!', ',', '.']) {
            last -= 1;
        }
        let mut at = last;
        while at > start && last - at < LONGEST && self.is(at - 1, ANY) {
            at -= 1;
        }
        let first = (at..last).find(|at| self.is(*at, CLOSER))?;
        let apart = at > start && self.tokens[at - 1].kind == Kind::Mark;
        Some(if apart { at } else { first })
    }
}
