//! Several gateways in processes of their own, on one PostgreSQL and one Redis: they behave as one. The tests also
//! kill or pause gateways and stores, and cut the connections between them.
//!
//! `make fleet` runs them.

#![allow(
    clippy::needless_pass_by_value,
    reason = "json!(…) reads best where it is used"
)]

#[path = "../it/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "what one gateway needs, several need in part"
)]
mod support;

mod gateways;
mod load;

mod agreement;
mod budgets;
mod crowds;
mod gateway_deaths;
mod hostile;
mod lost_replies;
mod overload;
mod pauses;
mod retries;
mod rolling;
mod starts;
mod store_deaths;
mod store_trouble;
mod tool_steps;
