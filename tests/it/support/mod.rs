//! Test support: a gateway on free ports, fake providers and servers with scripted behaviour, and clients.

pub mod admin;
pub mod agents;
pub mod alerts;
pub mod anthropic;
pub mod bodies;
pub mod console;
pub mod csv;
pub mod gateway;
pub mod gemini;
pub mod http2;
pub mod hybrids;
pub mod imports;
pub mod issuer;
pub mod ledger_view;
pub mod load;
pub mod market;
pub mod models;
pub mod portal;
#[path = "../../../src/db/testing/postgres_server.rs"]
pub mod postgres_server;
pub mod process;
pub mod proxy;
pub mod raw;
pub mod redis_server;
pub mod responses;
pub mod serving;
pub mod smtp;
pub mod sql;
pub mod sse;
pub mod stores;
pub mod stripe;
pub mod tls;
pub mod turns;
pub mod upstream;

pub use gateway::{Answer, Plan, TestGateway};
pub use http2::Http2Client;
pub use ledger_view::{Customer, LedgerView, View};
pub use load::Load;
pub use postgres_server::PostgresServer;
pub use process::Process;
pub use proxy::FaultProxy;
pub use raw::RawConnection;
pub use redis_server::RedisServer;
pub use serving::Serving;
pub use sse::Stream;
pub use upstream::{FakeUpstream, Gate, Step};
