//! Reads TOML files that people write, and reports all mistakes in them at once.
//!
//! serde stops at the first mistake and loses the position of a value. Here a file becomes a tree of [`Node`]s with
//! their line, or the environment variable that replaced them. A [`Section`] returns values and collects a [`Mistake`]
//! for each invalid value, each missing one, and each unknown key.

use std::fmt;

mod node;
mod section;

pub(crate) use node::{Node, Value, parse};
pub(crate) use section::{Section, as_fraction, as_integer, as_text, read};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of the file, counted from 1.
    Line(usize),
    /// An environment variable.
    Variable(String),
    /// An entry that was changed in the console, by what it is called.
    Change(String),
    /// The value is not in the file.
    Absent,
}

/// A mistake in a file: where it is, what is wrong and what is expected.
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
            Origin::Change(entry) => write!(f, "{entry}: {}", self.message),
            Origin::Absent => f.write_str(&self.message),
        }
    }
}
