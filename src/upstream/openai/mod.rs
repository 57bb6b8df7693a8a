//! Adapter for servers with OpenAI's chat completions API.
//!
//! Servers differ in details, which the configured [`Quirks`] and lenient parsing cover. A response that was cut off,
//! or that reports a failure in its body or stream, is an [`UpstreamError`].

mod answer;
mod chunks;
mod fields;
mod request;
#[cfg(test)]
mod tests;
mod token_count;

use futures_util::StreamExt as _;

use super::{
    Parts,
    client::{Client, KeyHeader},
    stream,
};
use crate::{
    config::{Quirks, RemoteProvider},
    net::offload::Offload,
    prompt::ChatCall,
    wire::{chat::Answer, error::UpstreamError, part},
};

const CHAT: &str = "/chat/completions";

pub struct OpenAi {
    client: Client,
    quirks: Quirks,
}

impl OpenAi {
    pub(crate) fn new(config: &RemoteProvider) -> Result<Self, String> {
        let own = config.quirks.key_header.as_deref();
        let own = own.map(|name| KeyHeader { name, prefix: "" });
        let client = Client::new(config, own.unwrap_or(KeyHeader::BEARER))?;
        let quirks = config.quirks.clone();
        Ok(Self { client, quirks })
    }

    /// Uses the slots for long computations that others use too.
    pub(crate) fn share_offload(&mut self, offload: &Offload) {
        self.client.share_offload(offload);
    }

    pub(crate) async fn complete(
        &self,
        call: &ChatCall,
        model: &str,
    ) -> Result<Answer, UpstreamError> {
        let body = request::write(call, model, false, &self.quirks);
        let response = self.client.post(CHAT, body, call, model).await?;
        let body = response.json().await?;
        answer::read(&body, call.choices())
    }

    pub(crate) async fn stream(
        &self,
        call: &ChatCall,
        model: &str,
    ) -> Result<Parts, UpstreamError> {
        if !self.quirks.streams {
            let answer = self.complete(call, model).await?;
            return Ok(futures_util::stream::iter(part::of(answer).map(Ok)).boxed());
        }
        let body = request::write(call, model, true, &self.quirks);
        let response = self.client.post(CHAT, body, call, model).await?;
        stream::parts(response, chunks::ChunkTranslator::new(call.choices()))
    }

    /// Lists the provider's models, which every such server supports free of charge.
    pub(crate) async fn probe(&self) -> Result<String, String> {
        self.client.probe("/models").await
    }
}

/// The parts of the adapter without I/O, for tests of all adapters: a stream, a whole response, a request.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn translator(n: u32) -> impl stream::Translator {
    chunks::ChunkTranslator::new(n)
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn answer_of(body: &[u8], n: u32) -> Result<Answer, UpstreamError> {
    answer::read(body, n)
}

/// The body sent upstream for a call.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn body_of(call: &crate::prompt::ChatCall) -> Vec<u8> {
    request::write(
        call,
        "vendor-model-9",
        true,
        &crate::config::Quirks::default(),
    )
}
