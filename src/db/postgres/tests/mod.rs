//! Real servers, and what stands in for one.

use super::{Address, Error, Probed};
use crate::db::testing::postgres_server::PostgresServer;

mod address;
mod connections;
mod hosts;
mod tls;

fn address(url: &str) -> Address {
    Address::parse(url).unwrap()
}
