//! Any server that speaks OpenAI's chat completions.

mod answer;
mod client;
mod reason;
mod request;
mod stream;
mod words;

use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use futures_util::StreamExt as _;

use self::client::{Client, Reply};
use super::Parts;
use crate::{chat::ChatCall, config::OpenAiProvider, error::UpstreamError, wire::chat::Answer};

/// The largest whole answer that is read.
const MAX_ANSWER_BYTES: usize = 32 << 20;
/// The most of a refusal's body that is read for its reason.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

pub struct OpenAi {
    client: Client,
    reasons: reason::Cleaner,
}

impl OpenAi {
    pub fn new(config: &OpenAiProvider) -> Result<Self, String> {
        Ok(Self {
            client: Client::new(config)?,
            reasons: reason::Cleaner::new(&config.base_url, config.api_key.as_ref()),
        })
    }

    pub async fn complete(&self, call: &ChatCall, model: &str) -> Result<Answer, UpstreamError> {
        let reply = self.ask(call, model, false).await?;
        answer::require_json(&reply.content_type)?;
        let body = reply.body_up_to(MAX_ANSWER_BYTES).await?;
        answer::read(&body, call.choices())
    }

    pub async fn stream(&self, call: &ChatCall, model: &str) -> Result<Parts, UpstreamError> {
        let reply = self.ask(call, model, true).await?;
        if !reply.content_type.starts_with("text/event-stream") {
            let message = format!("a stream of type {:?}", reply.content_type);
            return Err(UpstreamError::Malformed(message));
        }
        Ok(stream::parts(reply, call.choices()).boxed())
    }

    /// Lists the provider's models, which every such server can do and none charges for.
    pub async fn probe(&self) -> Result<String, String> {
        let reply = self
            .client
            .get("/models")
            .await
            .map_err(|error| error.to_string())?;
        let status = reply.status.as_u16();
        match reply.status {
            status if status.is_success() => Ok("answers".into()),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(format!("refuses our key (status {status})"))
            }
            StatusCode::NOT_FOUND => {
                Err("has no /models (status 404): is `base_url` right?".into())
            }
            _ => Err(format!("fails with status {status}")),
        }
    }

    async fn ask(
        &self,
        call: &ChatCall,
        model: &str,
        stream: bool,
    ) -> Result<Reply, UpstreamError> {
        let body = Bytes::from(request::write(call, model, stream));
        let reply = self.client.post("/chat/completions", body).await?;
        if reply.status == StatusCode::OK {
            return Ok(reply);
        }
        let status = reply.status.as_u16();
        // A refusal's body is worth a moment, not a timeout.
        let reading = reply.body_up_to(MAX_REFUSAL_BYTES);
        let body = tokio::time::timeout(Duration::from_secs(5), reading).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        let reason = self
            .reasons
            .for_caller(status, &body, model, &call.route.requested.id);
        Err(UpstreamError::Status { status, reason })
    }
}
