//! What tests need of the world: servers of their own.

pub mod postgres_server;
