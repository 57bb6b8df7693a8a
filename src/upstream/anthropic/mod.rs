//! Adapter for Anthropic's Messages API and compatible servers.
//!
//! A stream that ends without `message_stop` was cut off, and has neither a finish reason nor usage. A failure that
//! the API reports, in a status or within a stream, is an [`UpstreamError`].

mod answer;
mod bedrock;
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

pub(crate) use self::bedrock::BedrockFrames;
use std::sync::Arc;

use super::{
    Parts,
    client::{Client, KeyHeader, Response},
    stream,
};
use crate::{
    config::{Dialect, RemoteProvider},
    net::offload::Offload,
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
    /// The beta features that a cloud gets.
    betas: Arc<[String]>,
}

impl Anthropic {
    pub(crate) fn new(config: &RemoteProvider) -> Result<Self, String> {
        let dialect = config.dialect;
        let key_header = match dialect {
            Dialect::Anthropic | Dialect::Vertex => KEY,
            Dialect::Bedrock => KeyHeader::BEARER,
        };
        let mut client = Client::new(config, key_header)?.redacting(&VENDOR_NAMES);
        if let Some(version) = dialect.version_header() {
            client = client.with_default_header("anthropic-version", version);
        }
        let betas = config.betas.clone().into();
        Ok(Self {
            client,
            dialect,
            betas,
        })
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
            return self.parts(response, native::NativeTranslator::default());
        }
        let response = self.send(call, model, true).await?;
        self.parts(response, events::EventTranslator::default())
    }

    /// The parts of a streamed response, in the framing of the dialect.
    fn parts(
        &self,
        response: Response,
        translator: impl stream::Translator,
    ) -> Result<Parts, UpstreamError> {
        match self.dialect {
            Dialect::Anthropic | Dialect::Vertex => stream::parts(response, translator),
            Dialect::Bedrock => stream::framed_parts::<BedrockFrames>(response, translator),
        }
    }

    async fn send(
        &self,
        call: &ChatCall,
        model: &str,
        stream: bool,
    ) -> Result<Response, UpstreamError> {
        let mut body = request::write(call, self.dialect.naming(model, &[]), stream);
        if self.dialect == Dialect::Bedrock {
            body = self.bedrock_body(body, call, &[]).await?;
        }
        let path = self.dialect.messages(model, stream);
        self.client.post(&path, body, call, model).await
    }

    /// The body of a call as Bedrock takes it.
    async fn bedrock_body(
        &self,
        body: Vec<u8>,
        call: &ChatCall,
        betas: &[&str],
    ) -> Result<Vec<u8>, UpstreamError> {
        let betas: Vec<_> = betas.iter().map(|&beta| beta.to_owned()).collect();
        let allowed = self.betas.clone();
        let rewriting = self.client.prepare(body, call, move |body| {
            let betas: Vec<_> = betas.iter().map(String::as_str).collect();
            bedrock::body(&body, &betas, &allowed)
        });
        rewriting.await?
    }

    /// Uses the slots for long computations that others use too.
    pub(crate) fn share_offload(&mut self, offload: &Offload) {
        self.client.share_offload(offload);
    }

    /// Sends a request of a caller that speaks this API.
    async fn send_native(
        &self,
        native: &NativeRequest,
        call: &ChatCall,
        model: &str,
        stream: bool,
    ) -> Result<Response, UpstreamError> {
        let betas = native.headers().betas_in(&self.betas);
        let naming = self.dialect.naming(model, &betas);
        let mut body = native.body(naming, &call.user, call.budget.max_tokens);
        if self.dialect == Dialect::Bedrock {
            body = self.bedrock_body(body, call, &betas).await?;
        }
        let lines = self.dialect.lines(native.headers(), &betas);
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
        let body = self.body_to_count(native, call, model).await?;
        let path = self.dialect.count(model);
        if self.dialect == Dialect::Bedrock {
            // Not every model has a count there, so a refusal says nothing about the request.
            let counting = self.client.post(&path, body, call, model);
            return bedrock::read_count(&counting.await?.json().await?);
        }
        let lines = self.dialect.lines_to_count(native.headers());
        let counting = self.client.post_native(&path, body, lines, call, model);
        let body = counting.await?.json().await?;
        answer::read_count(&body)
    }

    /// The body of a request that counts tokens. The bodies that it is made of are gone when it is sent: memory is
    /// reserved for one that is forwarded.
    async fn body_to_count(
        &self,
        native: &NativeRequest,
        call: &ChatCall,
        model: &str,
    ) -> Result<Vec<u8>, UpstreamError> {
        let betas = native.headers().betas_in(&self.betas);
        let naming = self.dialect.naming_to_count(model, &betas);
        let body = native.body(naming, &call.user, None);
        if self.dialect != Dialect::Bedrock {
            return Ok(body);
        }
        let betas: Vec<_> = betas.into_iter().map(str::to_owned).collect();
        let allowed = self.betas.clone();
        let rewriting = self.client.prepare(body, call, move |body| {
            let betas: Vec<_> = betas.iter().map(String::as_str).collect();
            let counted = bedrock::counted_body(&body, &betas, &allowed)?;
            drop(body);
            Ok(bedrock::count_body(&counted))
        });
        rewriting.await?
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
