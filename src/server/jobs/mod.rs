//! Jobs that run beside requests until the gateway stops. A failed run is logged and repeated later.

pub(crate) mod alerter;
pub(crate) mod configuration;
pub(crate) mod pruner;
pub(crate) mod reconciler;
pub(crate) mod refused;
pub(crate) mod retention;
pub(crate) mod retries;
pub(crate) mod sampler;
pub(crate) mod settler;
pub(crate) mod telemetry;
pub(crate) mod top_ups;
