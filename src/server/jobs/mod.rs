//! Jobs that run beside requests until the gateway stops. A failed run is logged and repeated later.

pub mod alerter;
pub mod pruner;
pub mod reconciler;
pub mod sampler;
pub mod settler;
