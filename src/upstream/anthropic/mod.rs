//! Adapter for Anthropic's Messages API and compatible servers.
//!
//! A stream that ends without `message_stop` was cut off, and has neither a finish reason nor usage. A failure that
//! the API reports, in a status or within a stream, is an [`UpstreamError`].

mod answer;
mod conversation;
mod dialect;
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
    config::{Dialect, RemoteProvider},
    prompt::ChatCall,
    wire::{
        chat::Answer,
        error::UpstreamError,
        messages::{NativeMessage, NativeRequest},
    },
};

const KEY: KeyHeader = KeyHeader {
    name: "x-api-key",
    prefix: "",
};
/// Names redacted from error messages, whatever the host is.
const VENDOR_NAMES: [&str; 2] = ["anthropic", "claude"];

pub struct Anthropic {
    client: Client,
    dialect: Dialect,
}

impl Anthropic {
    pub(crate) fn new(config: &RemoteProvider) -> Result<Self, String> {
        let mut client = Client::new(config, KEY)?.redacting(&VENDOR_NAMES);
        let dialect = config.dialect;
        if let Some(version) = dialect.version_header() {
            client = client.with_default_header("anthropic-version", version);
        }
        Ok(Self { client, dialect })
    }

    pub(crate) async fn complete(
        &self,
        call: &ChatCall,
        model: &str,
    ) -> Result<Answer, UpstreamError> {
        if let Some(native) = &call.native {
            let response = self.send_native(native, call, model, false).await?;
            let body = response.json().await?;
            let mut answer = answer::read(&body)?;
            answer.native = Some(NativeMessage(body));
            return Ok(answer);
        }
        let response = self.send(call, model, false).await?;
        let body = response.json().await?;
        answer::read(&body)
    }

    pub(crate) async fn stream(
        &self,
        call: &ChatCall,
        model: &str,
    ) -> Result<Parts, UpstreamError> {
        if let Some(native) = &call.native {
            let response = self.send_native(native, call, model, true).await?;
            return stream::parts(response, native::NativeTranslator::default());
        }
        let response = self.send(call, model, true).await?;
        stream::parts(response, events::EventTranslator::default())
    }

    async fn send(
        &self,
        call: &ChatCall,
        model: &str,
        stream: bool,
    ) -> Result<Response, UpstreamError> {
        let body = request::write(call, self.dialect.naming(model), stream);
        let path = self.dialect.messages(model, stream);
        self.client.post(&path, body, call, model).await
    }

    /// Sends a request of a caller that speaks this API.
    async fn send_native(
        &self,
        native: &NativeRequest,
        call: &ChatCall,
        model: &str,
        stream: bool,
    ) -> Result<Response, UpstreamError> {
        let naming = self.dialect.naming(model);
        let body = native.body(naming, &call.user, call.budget.max_tokens);
        let lines = self.dialect.lines(native.headers());
        let path = self.dialect.messages(model, stream);
        let sending = self.client.post_native(&path, body, &lines, call, model);
        sending.await
    }

    /// Counts the tokens of a request of a caller that speaks this API, which is free of charge.
    pub(crate) async fn count_tokens(
        &self,
        native: &NativeRequest,
        call: &ChatCall,
        model: &str,
    ) -> Result<u64, UpstreamError> {
        let naming = self.dialect.naming_to_count(model);
        let body = native.body(naming, &call.user, None);
        let lines = self.dialect.lines_to_count(native.headers());
        let path = self.dialect.count();
        let counting = self.client.post_native(path, body, lines, call, model);
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
    let naming = crate::wire::messages::Naming::Model("vendor-model-9");
    request::write(call, naming, true)
}
