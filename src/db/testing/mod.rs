//! Private servers for tests.

#![allow(
    unreachable_pub,
    reason = "integration tests and benchmarks include these files by their path"
)]

pub mod bouncer;
pub mod fake_clock;
pub mod postgres_server;
