//! Which model answers for a hybrid.

pub mod scorer;
