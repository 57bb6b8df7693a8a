//! The gateway as its callers and its operator meet it: a file per chapter of the contract.

#![allow(
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "a table is as long as it is, and json!(…) reads best where it is used"
)]

mod support;

mod c02_answers;
mod c02_failures;
mod c02_fields;
mod c02_messages;
mod c02_parameters;
mod c02_shape;
mod c02_tool_order;
mod c02_tools;
mod c03_entitlement;
mod c03_models;
mod c03_provider;
mod c04_conversations;
mod c04_conversations_bounds;
mod c04_responses;
mod c04_responses_checks;
mod c04_responses_streams;
mod c04_responses_tools;
mod c04_routes;
mod c04_tool_loop;
mod c04_tool_loop_bounds;
mod c04_tool_loop_faults;
mod c04_tool_loop_leaving;
mod c04_tool_loop_providers;
mod c04_tool_loop_streams;
mod c04_tool_offers;
mod c05_keys;
mod c06_awkward_streams;
mod c06_backpressure;
mod c06_events;
mod c07_errors;
mod c08_budgets;
mod c08_credit;
mod c08_limits;
mod c08_store;
mod c09_anthropic;
mod c09_anthropic_failures;
mod c09_failover;
mod c09_gemini;
mod c09_gemini_failures;
mod c09_quirks;
mod c10_escalation;
mod c10_hybrids;
mod configuration;
mod configuration_catalog;
mod configuration_environment;
mod configuration_tools;
mod configuration_weights;
mod connection_heads;
mod connection_slow;
mod connection_stalls;
mod faults_crowds;
mod faults_cut;
mod faults_forms;
mod faults_keys;
mod faults_leaving;
mod faults_provider;
mod faults_requests;
mod faults_usage;
mod harness_proxy;
mod harness_servers;
mod operator_api;
mod operator_credit;
mod operator_history;
mod portal_console;
mod portal_console_access;
mod portal_console_pages;
mod portal_keys;
mod portal_letters;
mod portal_people;
mod portal_playground;
mod portal_requests;
mod portal_security;
mod portal_usage;
mod process;
mod process_check;
mod process_kill;
mod process_log_words;
mod process_logs;
mod process_memory;
mod process_reload;
mod process_stop;
mod process_stop_money;
mod process_tls;
mod process_tls_upstream;
mod router_calibrate;
mod tools_chain;
mod tools_market;
