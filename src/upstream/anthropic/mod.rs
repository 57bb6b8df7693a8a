//! Adapter for Anthropic's Messages API and compatible servers.
//!
//! A stream that ends without `message_stop` was cut off, and has neither a finish reason nor usage. A failure that
//! the API reports, in a status or within a stream, is an [`UpstreamError`].

mod answer;
mod conversation;
mod events;
mod fields;
mod native;
mod request;
mod schema;
mod thinking;
mod tools;

#[cfg(test)]
mod tests;

use super::{
    Parts,
    client::{Client, KeyHeader, Response},
    stream,
};
use crate::{
    config::RemoteProvider,
    prompt::ChatCall,
    wire::{
        chat::Answer,
        error::UpstreamError,
        messages::{NativeMessage, NativeRequest},
    },
};

const MESSAGES: &str = "/messages";
const COUNT: &str = "/messages/count_tokens";
const KEY: KeyHeader = KeyHeader {
    name: "x-api-key",
    prefix: "",
};
/// The API version that this adapter implements.
const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");
/// Names redacted from error messages, whatever the host is.
const VENDOR_NAMES: [&str; 2] = ["anthropic", "claude"];

pub struct Anthropic {
    client: Client,
}

impl Anthropic {
    pub(crate) fn new(config: &RemoteProvider) -> Result<Self, String> {
        let (name, version) = VERSION;
        let client = Client::new(config, KEY)?
            .with_default_header(name, version)
            .redacting(&VENDOR_NAMES);
        Ok(Self { client })
    }

    pub(crate) async fn complete(
        &self,
        call: &ChatCall,
        model: &str,
    ) -> Result<Answer, UpstreamError> {
        if let Some(native) = &call.native {
            let body = self.send_native(native, call, model).await?.json().await?;
            let mut answer = answer::read(&body)?;
            answer.native = Some(NativeMessage(body));
            return Ok(answer);
        }
        let body = request::write(call, model, false);
        let response = self.client.post(MESSAGES, body, call, model).await;
        let body = response?.json().await?;
        answer::read(&body)
    }

    pub(crate) async fn stream(
        &self,
        call: &ChatCall,
        model: &str,
    ) -> Result<Parts, UpstreamError> {
        if let Some(native) = &call.native {
            let response = self.send_native(native, call, model).await?;
            return stream::parts(response, native::NativeTranslator::default());
        }
        let body = request::write(call, model, true);
        let response = self.client.post(MESSAGES, body, call, model).await;
        stream::parts(response?, events::EventTranslator::default())
    }

    /// Sends a request of a caller that speaks this API.
    async fn send_native(
        &self,
        native: &NativeRequest,
        call: &ChatCall,
        model: &str,
    ) -> Result<Response, UpstreamError> {
        let body = native.body(model, &call.user, call.budget.max_tokens);
        let lines = native.headers().lines();
        let sending = self.client.post_native(MESSAGES, body, lines, call, model);
        sending.await
    }

    /// Counts the tokens of a request of a caller that speaks this API, which is free of charge.
    pub(crate) async fn count_tokens(
        &self,
        native: &NativeRequest,
        call: &ChatCall,
        model: &str,
    ) -> Result<u64, UpstreamError> {
        let body = native.body(model, &call.user, None);
        let lines = native.headers().lines();
        let counting = self.client.post_native(COUNT, body, lines, call, model);
        let body = counting.await?.json().await?;
        answer::read_count(&body)
    }

    /// Lists the provider's models, which is free of charge.
    pub(crate) async fn probe(&self) -> Result<String, String> {
        self.client.probe("/models").await
    }
}

/// The parts of the adapter without I/O, for tests of all adapters: a stream, a whole response, a request.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn translator() -> impl stream::Translator {
    events::EventTranslator::default()
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn answer_of(body: &[u8]) -> Result<Answer, UpstreamError> {
    answer::read(body)
}

/// The body sent upstream for a call.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn body_of(call: &crate::prompt::ChatCall) -> Vec<u8> {
    request::write(call, "vendor-model-9", true)
}
