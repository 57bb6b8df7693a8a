//! What tests need of the world: servers of their own.

pub mod bouncer;
pub mod fake_clock;
pub mod postgres_server;
