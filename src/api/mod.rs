//! The HTTP APIs: the public API (`public`, §4) and the operator API (`operator`), with what they share.
//!
//! Every request gets an ID, one line in the access log and one response. A failure, including a panic of a handler, is
//! an error envelope with the status of its kind (§7). A client that hangs up does not lose or repeat a charge: the
//! billed part of a request runs in `metered`.
//!
//! May use `metered` and the rooms listed after it in `src/lib.rs`.

mod access_log;
mod body;
mod budget;
mod departure;
mod dialect;
mod extract;
mod layers;
pub mod openapi;
pub(crate) mod operator;
mod proxies;
pub mod public;
mod refusal_limits;
mod refused;
mod span;

use access_log::log_operator_requests;
pub(crate) use access_log::{RequestLog, loggable, loggable_method};
pub(crate) use body::{MemoryGate, read_body, read_through};
pub(crate) use extract::Peer;
pub(crate) use proxies::{Source, TrustedProxies};

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

/// A JSON response. Unlike axum's type it does not turn a serialization failure into a response of its own.
pub(crate) struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.0).expect("our own responses serialise");
        json_response(body)
    }
}

fn json_response(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
