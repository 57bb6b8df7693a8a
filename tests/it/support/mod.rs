//! A gateway on free ports with a provider that does as it is told.

pub mod anthropic;
pub mod bodies;
pub mod books;
pub mod gateway;
pub mod gemini;
pub mod hybrids;
pub mod market;
pub mod models;
pub mod process;
pub mod raw;
pub mod responses;
pub mod serving;
pub mod sse;
pub mod tls;
pub mod turns;
pub mod upstream;

pub use books::{Books, Purse, View};
pub use gateway::{Answer, Plan, TestGateway};
pub use process::Process;
pub use raw::RawConnection;
pub use serving::Serving;
pub use sse::Stream;
pub use upstream::{FakeUpstream, Gate, Step};
