//! Google's Gemini: `generateContent` and `streamGenerateContent`.
//!
//! The translation is pure, but for one thing: what Gemini wants to see again with a function call
//! has no place in a chat, so [`calls`] keeps it here.

mod answer;
mod calls;
mod contents;
mod events;
mod generation;
mod logprobs;
mod object;
mod request;
mod response;
mod thinking;
mod words;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::{calls::Calls, events::Events};
use super::{
    Parts,
    client::{Client, KeyHeader},
    stream,
};
use crate::{
    config::RemoteProvider,
    prompt::ChatCall,
    wire::{chat::Answer, error::UpstreamError},
};

const KEY: KeyHeader = KeyHeader {
    name: "x-goog-api-key",
    prefix: "",
};

/// Words that would tell who it is, besides its host and model.
const TELLTALE: &[&str] = &["google", "gemini", "vertex", "generatecontent"];

pub struct Gemini {
    client: Client,
    calls: Arc<Calls>,
}

impl Gemini {
    pub fn new(config: &RemoteProvider) -> Result<Self, String> {
        Ok(Self {
            client: Client::new(config, KEY)?.hiding(TELLTALE),
            calls: Arc::new(Calls::default()),
        })
    }

    pub async fn complete(&self, call: &ChatCall, model: &str) -> Result<Answer, UpstreamError> {
        let body = request::write(call, model, &self.calls);
        let path = path(model, "generateContent");
        let reply = self.client.ask(&path, body, call, model).await?;
        let body = reply.json().await?;
        answer::read(&body, call.choices(), &self.calls)
    }

    pub async fn stream(&self, call: &ChatCall, model: &str) -> Result<Parts, UpstreamError> {
        let body = request::write(call, model, &self.calls);
        let path = path(model, "streamGenerateContent?alt=sse");
        let reply = self.client.ask(&path, body, call, model).await?;
        stream::parts(reply, Events::new(call.choices(), self.calls.clone()))
    }

    /// Lists the provider's models, which costs nothing.
    pub async fn probe(&self) -> Result<String, String> {
        self.client.probe("/models").await
    }
}

/// A model is `models/{model}`, unless it is written with a collection of its own
/// (`tunedModels/mine`).
fn path(model: &str, method: &str) -> String {
    let collection = if model.contains('/') { "" } else { "models/" };
    format!("/{collection}{model}:{method}")
}

/// The body that goes upstream for a call.
#[cfg(test)]
pub fn body_of(call: &crate::prompt::ChatCall) -> Vec<u8> {
    request::write(call, "vendor-model-9", &calls::Calls::default())
}
