//! Private servers for tests.

pub mod bouncer;
pub mod fake_clock;
pub mod postgres_server;
