//! The gateway as its callers and its operator meet it: a file per chapter of the contract.

mod support;

mod c06_awkward_streams;
mod c06_backpressure;
mod c06_events;
