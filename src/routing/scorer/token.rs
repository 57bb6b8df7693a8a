//! A piece of the text, as the features see it.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Word,
    Number,
    /// A run of one sign, such as `.` or `==`.
    Mark,
}

/// A piece of the folded text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub hash: u64,
    pub start: u32,
    pub end: u32,
    /// The first character.
    pub first: char,
    /// How many characters it has.
    pub letters: u32,
    pub kind: Kind,
    /// What it counts as; see [`class`](super::class).
    pub class: u8,
}

impl Token {
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    pub fn ascii(&self) -> bool {
        self.letters == self.end - self.start
    }
}
