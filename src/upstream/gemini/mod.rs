//! Adapter for Google's Gemini API: `generateContent` and `streamGenerateContent`.
//!
//! The translation has one piece of state: signatures of function calls, which Gemini requires in the history and a
//! chat cannot carry, are kept in [`call_cache`]. A stream in which a candidate has no finish reason was cut off.

mod answer;
mod call_cache;
mod contents;
mod events;
mod fields;
mod generation;
mod logprobs;
mod object;
mod request;
mod response;
mod thinking;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::{call_cache::CallCache, events::EventTranslator};
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

/// Names redacted from error messages, besides the host and the model.
const VENDOR_NAMES: &[&str] = &["google", "gemini", "vertex", "generatecontent"];

pub struct Gemini {
    client: Client,
    calls: Arc<CallCache>,
}

impl Gemini {
    pub(crate) fn new(config: &RemoteProvider) -> Result<Self, String> {
        Ok(Self {
            client: Client::new(config, KEY)?.redacting(VENDOR_NAMES),
            calls: Arc::new(CallCache::default()),
        })
    }

    pub(crate) async fn complete(
        &self,
        call: &ChatCall,
        model: &str,
    ) -> Result<Answer, UpstreamError> {
        let body = request::write(call, model, &self.calls);
        let path = path(model, "generateContent");
        let response = self.client.post(&path, body, call, model).await?;
        let body = response.json().await?;
        answer::read(&body, call.choices(), &self.calls)
    }

    pub(crate) async fn stream(
        &self,
        call: &ChatCall,
        model: &str,
    ) -> Result<Parts, UpstreamError> {
        let body = request::write(call, model, &self.calls);
        let path = path(model, "streamGenerateContent?alt=sse");
        let response = self.client.post(&path, body, call, model).await?;
        stream::parts(
            response,
            EventTranslator::new(call.choices(), self.calls.clone()),
        )
    }

    /// Lists the provider's models, which is free of charge.
    pub(crate) async fn probe(&self) -> Result<String, String> {
        self.client.probe("/models").await
    }
}

/// The path of a method: `/models/{model}:{method}`, unless the model names another collection (`tunedModels/mine`).
fn path(model: &str, method: &str) -> String {
    let collection = if model.contains('/') { "" } else { "models/" };
    format!("/{collection}{model}:{method}")
}

/// The parts of the adapter without I/O, for tests of all adapters: a stream, a whole response, a request.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn translator(n: u32) -> impl stream::Translator {
    EventTranslator::new(n, Arc::new(CallCache::default()))
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn answer_of(body: &[u8], n: u32) -> Result<Answer, UpstreamError> {
    answer::read(body, n, &CallCache::default())
}

/// The body sent upstream for a call.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn body_of(call: &crate::prompt::ChatCall) -> Vec<u8> {
    request::write(call, "vendor-model-9", &call_cache::CallCache::default())
}
