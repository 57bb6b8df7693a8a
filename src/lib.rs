//! Tollgate: a metered, OpenAI-compatible inference gateway.
//!
//! The modules in the order in which a request meets them; `docs/ARCHITECTURE.md` walks through
//! one. Imports point downwards.

pub mod cli;
pub mod server;

pub mod http;
pub mod operator;
pub mod portal;

pub mod acts;
pub mod alerts;
pub mod gateway;
mod mailbox;
pub mod metered;
pub mod metrics;
pub mod routing;
pub mod traffic;
pub mod upstream;

pub mod chat;
pub mod conversations;
pub mod ledger;
pub mod office;
pub mod payments;
pub mod spool;
pub mod tools;
pub mod wire;

pub mod catalog;
pub mod config;

pub mod auth;
pub mod checked_toml;
mod clock_offset;
pub mod error;
pub mod failpoint;
mod fast_map;
mod in_time;
pub mod limits;
pub mod mail;
mod migrations;
pub mod money;
pub mod oidc;
pub mod outgoing;
pub mod postgres;
mod shared_buffer;
pub mod sqlite;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod time_text;
pub mod webhook;
