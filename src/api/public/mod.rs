//! The public API.

mod billed;
mod call;
mod chat;
mod confirm;
mod front;
mod health;
mod models;
mod payments;
mod provider;
mod responses;
mod router;
mod sse;

pub use billed::Endpoint;
pub use call::explain;
pub use front::Front;
pub use payments::delivered;
pub use router::public;
