//! What runs beside requests.

pub mod alerter;
pub mod pruner;
pub mod reconciler;
pub mod settler;
pub mod watcher;
