//! The gateway as its callers and its operator meet it: a file per chapter of the contract.

mod support;

mod c02_answers;
mod c02_failures;
mod c02_fields;
mod c02_messages;
mod c02_parameters;
mod c02_shape;
mod c02_tool_order;
mod c02_tools;
mod c06_awkward_streams;
mod c06_backpressure;
mod c06_events;
mod c08_budgets;
