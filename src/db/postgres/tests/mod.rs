//! Tests with real PostgreSQL servers.

use super::{Address, Error, probe::ServerInfo};
use crate::db::testing::postgres_server::PostgresServer;

mod address;
mod connections;
mod hosts;
mod tls;

fn address(url: &str) -> Address {
    Address::parse(url).unwrap()
}
