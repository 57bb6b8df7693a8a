//! Threads, connections and HTTP/1.

pub mod begun;
pub mod callbacks;
pub mod connect;
pub mod drain;
pub mod http1;
pub mod lanes;
pub mod read_buffer;
pub mod shutdown;
pub mod socket;
pub mod stall;
pub mod timeout;
