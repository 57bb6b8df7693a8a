//! TOML that a person wrote, read so that every mistake is reported at once.
//!
//! serde stops at the first mistake and forgets where a value came from. Here a file becomes a
//! tree of [`Node`]s that know their line (or the environment variable that replaced them), and a
//! [`Section`] hands out values, collecting a [`Mistake`] for each that cannot be used, each that
//! is missing, and each key nobody asked for.

use std::fmt;

mod node;
mod section;

pub use node::{Node, Value, parse};
pub use section::{Section, as_fraction, as_integer, as_text, read};

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Line(usize),
    Variable(String),
    Absent,
}

/// One thing to mend: where it is, what is wrong, what is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub origin: Origin,
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Line(line) => write!(f, "line {line}: {}", self.message),
            Origin::Variable(name) => write!(f, "environment variable {name}: {}", self.message),
            Origin::Absent => f.write_str(&self.message),
        }
    }
}
