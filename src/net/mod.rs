//! Threads, connections and HTTP/1: the network layer below the API and the provider adapters.
//!
//! It has the threads that serve requests (`lanes`), callbacks between them, shutdown, timeouts, and both ends of
//! HTTP/1. A connection whose peer leaves, stalls or sends malformed bytes fails alone. A request that cannot be
//! parsed gets an error response through the router, and a response that was cut off is never passed on as complete.
//!
//! May use `wire`, `routing`, `catalog` and `base`; it needs only `wire`, for `UpstreamError`.

pub mod callbacks;
pub mod connect;
pub mod drain;
pub mod http1;
pub mod lanes;
pub mod prefixed_stream;
pub mod read_buffer;
pub mod shutdown;
pub mod socket;
pub mod stall;
pub mod timeout;
