//! Why a tool has no answer.

use std::fmt;

/// Why there is no answer, in words for the model: no URL, no host, no key.
#[derive(Debug)]
pub enum Failure {
    /// The call itself is wrong, and another one may do.
    Arguments(String),
    Because(String),
}

impl Failure {
    pub fn arguments(words: impl Into<String>) -> Self {
        Self::Arguments(words.into())
    }

    pub fn because(words: impl Into<String>) -> Self {
        Self::Because(words.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Arguments(words) | Self::Because(words)) = self;
        f.write_str(words)
    }
}
