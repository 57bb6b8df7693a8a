//! Anthropic's Messages API, and servers that speak it.
//!
//! An answer that the API did not end with its own last word is an interrupted one; a failure it
//! tells of, in a status or in the middle of a stream, is a failure here too.

mod answer;
mod conversation;
mod events;
mod request;
mod schema;
mod thinking;
mod tools;
mod words;

#[cfg(test)]
mod tests;

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

const MESSAGES: &str = "/messages";
const KEY: KeyHeader = KeyHeader {
    name: "x-api-key",
    prefix: "",
};
/// The version whose shapes are read and written here.
const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");
/// What its refusals call it and its models, whatever address they come from.
const NAMES: [&str; 2] = ["anthropic", "claude"];

pub struct Anthropic {
    client: Client,
}

impl Anthropic {
    pub fn new(config: &RemoteProvider) -> Result<Self, String> {
        let (name, version) = VERSION;
        let client = Client::new(config, KEY)?
            .with_header(name, version)
            .hiding(&NAMES);
        Ok(Self { client })
    }

    pub async fn complete(&self, call: &ChatCall, model: &str) -> Result<Answer, UpstreamError> {
        let body = request::write(call, model, false);
        let reply = self.client.ask(MESSAGES, body, call, model).await;
        let body = reply?.json().await?;
        answer::read(&body)
    }

    pub async fn stream(&self, call: &ChatCall, model: &str) -> Result<Parts, UpstreamError> {
        let body = request::write(call, model, true);
        let reply = self.client.ask(MESSAGES, body, call, model).await;
        stream::parts(reply?, events::Messages::default())
    }

    /// Lists the provider's models, which costs nothing.
    pub async fn probe(&self) -> Result<String, String> {
        self.client.probe("/models").await
    }
}

/// The body that goes upstream for a call.
#[cfg(test)]
pub fn body_of(call: &crate::prompt::ChatCall) -> Vec<u8> {
    request::write(call, "vendor-model-9", true)
}
