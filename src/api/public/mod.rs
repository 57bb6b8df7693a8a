//! The public API: billed endpoints, stored responses, models, health, and callbacks of payment providers (§4).
//!
//! A request that is refused costs nothing and gets an error envelope (§7). A refusal that may rest on a stale cache is
//! checked against the store first (`confirm`). After a stream has begun, a failure is an error event in it (§6.2).
//!
//! May use what `api` may use; within `api` it uses the access log, the extractors and the layers.

mod billed;
mod call;
mod caller_body;
mod chat;
mod confirm;
mod front;
mod health;
mod key;
mod messages;
mod models;
mod payments;
mod provider;
mod responses;
mod retries;
mod router;
mod sse;

pub(crate) use billed::{CallHeaders, Endpoint};
pub(crate) use call::explain;
pub use front::Front;
pub(crate) use payments::delivered;
pub(crate) use router::public;
