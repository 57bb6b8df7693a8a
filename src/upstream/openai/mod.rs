//! Any server that speaks OpenAI's chat completions.

mod answer;
mod chunks;
mod count;
mod request;
#[cfg(test)]
mod tests;
mod words;

use futures_util::StreamExt as _;

use super::{
    Parts,
    client::{Client, KeyHeader},
    stream,
};
use crate::{
    config::{Quirks, RemoteProvider},
    prompt::ChatCall,
    wire::{chat::Answer, error::UpstreamError, part},
};

const CHAT: &str = "/chat/completions";

pub struct OpenAi {
    client: Client,
    quirks: Quirks,
}

impl OpenAi {
    pub fn new(config: &RemoteProvider) -> Result<Self, String> {
        let own = config.quirks.key_header.as_deref();
        let own = own.map(|name| KeyHeader { name, prefix: "" });
        let client = Client::new(config, own.unwrap_or(KeyHeader::BEARER))?;
        let quirks = config.quirks.clone();
        Ok(Self { client, quirks })
    }

    pub async fn complete(&self, call: &ChatCall, model: &str) -> Result<Answer, UpstreamError> {
        let body = request::write(call, model, false, &self.quirks);
        let reply = self.client.ask(CHAT, body, call, model).await?;
        let body = reply.json().await?;
        answer::read(&body, call.choices())
    }

    pub async fn stream(&self, call: &ChatCall, model: &str) -> Result<Parts, UpstreamError> {
        if !self.quirks.streams {
            let answer = self.complete(call, model).await?;
            return Ok(futures_util::stream::iter(part::of(answer).map(Ok)).boxed());
        }
        let body = request::write(call, model, true, &self.quirks);
        let reply = self.client.ask(CHAT, body, call, model).await?;
        stream::parts(reply, chunks::Chunks::new(call.choices()))
    }

    /// Lists the provider's models, which every such server can do and none charges for.
    pub async fn probe(&self) -> Result<String, String> {
        self.client.probe("/models").await
    }
}

/// The body that goes upstream for a call.
#[cfg(test)]
pub fn body_of(call: &crate::prompt::ChatCall) -> Vec<u8> {
    request::write(
        call,
        "vendor-model-9",
        true,
        &crate::config::Quirks::default(),
    )
}
