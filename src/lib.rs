//! Tollgate: a metered, OpenAI-compatible inference gateway.
//!
//! The rooms of the code, from the command line down to the basics. A room may use the rooms listed after it and none
//! listed before it; `scripts/check-rooms` reads the order from this list and fails on an import against it.
//!
//! What is `pub` is used by the binary, a test or a benchmark; everything else is `pub(crate)`, so that the compiler
//! finds what is no longer used.

#![warn(unreachable_pub)]

#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;

pub mod cli;
pub mod server;

pub mod portal;

pub mod api;

mod metered;

pub mod gateway;

pub mod backoffice;

pub mod upstream;

mod prompt;

pub mod tools;

pub mod config;

pub mod telemetry;

pub mod ledger;

pub mod limits;

mod conversations;

pub mod db;

mod net;

pub mod wire;

pub mod routing;

pub mod catalog;

pub mod base;
