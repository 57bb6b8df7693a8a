//! Threads, connections and HTTP: the network layer below the API and the provider adapters.
//!
//! It has the threads that serve requests (`lanes`) and threads for long computations (`offload`), callbacks between
//! them, the memory of request bodies, shutdown, timeouts, both ends of HTTP/1, and the server of HTTP/2. A connection
//! whose peer leaves, stalls or sends malformed bytes fails alone. A request that cannot be parsed gets an error response
//! through the router, and a response that was cut off is never passed on as complete.
//!
//! May use `wire`, `routing`, `catalog` and `base`; it needs only `wire`, for `UpstreamError`.

pub(crate) mod body_memory;
pub(crate) mod callbacks;
pub(crate) mod connect;
pub(crate) mod drain;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod lag;
pub(crate) mod lanes;
pub(crate) mod no_verification;
pub(crate) mod offload;
pub(crate) mod prefixed_stream;
pub(crate) mod read_buffer;
pub(crate) mod shutdown;
pub(crate) mod silence;
pub(crate) mod socket;
pub(crate) mod stall;
pub(crate) mod timeout;
pub(crate) mod unread;
