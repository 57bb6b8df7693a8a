//! A token of the text, from which features are computed.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Word,
    Number,
    /// A run of one sign, such as `.` or `==`.
    Mark,
}

/// A token of the case-folded text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub hash: u64,
    pub start: u32,
    pub end: u32,
    /// The first character.
    pub first: char,
    /// The number of characters.
    pub letters: u32,
    pub kind: Kind,
    /// Its class; see [`class`](super::class).
    pub class: u8,
}

impl Token {
    pub(crate) fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    pub(crate) fn ascii(&self) -> bool {
        self.letters == self.end - self.start
    }
}
