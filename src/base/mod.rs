//! Plain values that every room uses.

pub mod checked_toml;
pub mod clock;
pub mod clock_offset;
pub mod durability;
pub mod failpoint;
pub mod fast_map;
pub mod keys;
pub mod money;
pub mod rate;
pub mod timestamp;
pub mod tokens;
