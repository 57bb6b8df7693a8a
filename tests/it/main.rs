//! The gateway as its callers and its operator meet it: a file per chapter of the contract.

mod support;

mod c03_entitlement;
mod c03_models;
mod c03_provider;
mod c04_routes;
mod c05_keys;
mod c06_events;
mod c07_errors;
mod configuration;
mod configuration_catalog;
mod configuration_environment;
mod operator_api;
mod operator_credit;
mod process;
mod process_check;
mod process_logs;
mod process_stop;
mod process_tls;
