//! The public surface: SPEC §4.

mod access_log;
mod extract;
mod layers;
pub mod operator;
mod proxies;
pub mod public;

pub use access_log::{RequestLog, log_requests, loggable};
pub use extract::{Peer, read_body};
pub use proxies::TrustedProxies;

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

/// A JSON answer, without a framework's own ideas about failures.
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.0).expect("our own answers serialise");
        json_response(body)
    }
}

fn json_response(body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
