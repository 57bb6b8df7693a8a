//! Asking the sources of data: only those of the configuration, and only for JSON.
//!
//! No redirect is followed, no answer is read beyond a bound, and nothing that is said of a failure
//! tells who was asked.

use std::time::Duration;

use axum::http::{Method, Request, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::net::connect;

const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Questions under way at once; the others wait, within the time their tool has.
const MAX_QUESTIONS: usize = 32;

pub struct Web {
    http: connect::Client,
    room: Semaphore,
}

/// What went wrong, to be put after the words for who was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("cannot be reached")]
    Unreachable,
    #[error("broke off its answer")]
    BrokenOff,
    #[error("{}", words(*.0))]
    Status(StatusCode),
    #[error("answers with more than 1 MiB")]
    TooLarge,
    #[error("does not answer as expected")]
    NotAsExpected,
}

fn words(status: StatusCode) -> String {
    let number = status.as_u16();
    match number {
        300..=399 => format!("redirects, which is not followed (status {number})"),
        401 | 403 => format!("refuses our key (status {number})"),
        429 => "is asked too often (status 429); try again later".into(),
        _ => format!("fails with status {number}"),
    }
}

impl Web {
    pub fn new(timeout: Duration) -> Result<Self, String> {
        Ok(Self {
            http: connect::client(timeout)?,
            room: Semaphore::new(MAX_QUESTIONS),
        })
    }

    /// Another one over the same connections.
    pub fn with_room_of_its_own(&self) -> Self {
        Self {
            http: self.http.clone(),
            room: Semaphore::new(MAX_QUESTIONS),
        }
    }

    /// A request to be given more headers.
    pub fn request(method: Method, uri: Uri) -> axum::http::request::Builder {
        let agent = concat!("tollgate/", env!("CARGO_PKG_VERSION"));
        Request::builder()
            .method(method)
            .uri(uri)
            .header(header::ACCEPT, "application/json")
            // No encoding to unpack, no bomb in it.
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::USER_AGENT, agent)
    }

    pub async fn ask<T: DeserializeOwned>(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<T, Fault> {
        let _room = self.room.acquire().await.map_err(|_| Fault::Unreachable)?;
        let response = self.http.request(request).await.map_err(|error| {
            if error.is_connect() {
                Fault::Unreachable
            } else {
                Fault::BrokenOff
            }
        })?;
        if response.status() != StatusCode::OK {
            return Err(Fault::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES);
        let body = body.collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                Fault::TooLarge
            } else {
                Fault::BrokenOff
            }
        })?;
        serde_json::from_slice(&body.to_bytes()).map_err(|_| Fault::NotAsExpected)
    }
}
