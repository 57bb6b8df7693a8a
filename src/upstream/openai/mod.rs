//! Any server that speaks OpenAI's chat completions.

mod answer;
mod chunks;
mod request;
mod words;

use super::{
    Parts,
    client::{Client, KeyHeader},
    stream,
};
use crate::{chat::ChatCall, config::RemoteProvider, error::UpstreamError, wire::chat::Answer};

const CHAT: &str = "/chat/completions";

pub struct OpenAi {
    client: Client,
}

impl OpenAi {
    pub fn new(config: &RemoteProvider) -> Result<Self, String> {
        let client = Client::new(config, KeyHeader::BEARER)?;
        Ok(Self { client })
    }

    pub async fn complete(&self, call: &ChatCall, model: &str) -> Result<Answer, UpstreamError> {
        let body = request::write(call, model, false);
        let reply = self.client.ask(CHAT, body, call, model).await?;
        let body = reply.json().await?;
        answer::read(&body, call.choices())
    }

    pub async fn stream(&self, call: &ChatCall, model: &str) -> Result<Parts, UpstreamError> {
        let body = request::write(call, model, true);
        let reply = self.client.ask(CHAT, body, call, model).await?;
        stream::parts(reply, chunks::Chunks::new(call.choices()))
    }

    /// Lists the provider's models, which every such server can do and none charges for.
    pub async fn probe(&self) -> Result<String, String> {
        self.client.probe("/models").await
    }
}
