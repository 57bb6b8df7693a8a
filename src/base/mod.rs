//! Plain values and small algorithms that every room uses: money, times, keys, one-time passwords, rate limits, token
//! estimates, TOML.
//!
//! Nothing here does I/O, apart from reading clocks and random numbers and from logging, so the only failures are values that cannot be
//! parsed or do not fit; they are returned as `None` or an error.
//!
//! It uses no other room.

pub(crate) mod checked_toml;
pub mod clock;
pub(crate) mod clock_offset;
pub mod durability;
pub mod failpoint;
pub(crate) mod fast_map;
pub(crate) mod guessable;
pub(crate) mod hex;
pub mod keys;
pub mod money;
pub(crate) mod month;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod mutation;
pub(crate) mod network;
pub(crate) mod outage;
pub mod rate;
pub mod timestamp;
pub mod tokens;
pub mod totp;
pub mod version;
