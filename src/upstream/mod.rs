//! The providers: one folder each, one question, one answer.
//!
//! A provider is asked with a [`ChatCall`] and answers with an [`Answer`] or a stream of
//! [`Part`]s. Whatever its own format, nothing of it gets past this room: not its names, not its
//! finish reasons, not its words.

use futures_util::stream::BoxStream;

mod anthropic;
mod client;
#[cfg(test)]
mod counted;
pub mod deployments;
mod gemini;
mod openai;
mod reason;
mod simulator;
mod sse;
mod stream;
#[cfg(test)]
mod testing;

pub use anthropic::Anthropic;
pub use deployments::Deployments;
pub use gemini::Gemini;
pub use openai::OpenAi;
pub use simulator::Simulator;
pub use sse::{Event, SseReader};

use crate::{
    config::{ProviderKind, RemoteProvider},
    prompt::ChatCall,
    wire::{chat::Answer, error::UpstreamError, part::Part},
};

/// The parts of a streamed answer, in the order in which the provider sent them.
///
/// It ends where the provider said so or closed the connection; whether the answer was complete
/// by then is for the reader of the parts to judge.
pub type Parts = BoxStream<'static, Result<Part, UpstreamError>>;

pub enum Provider {
    Gemini(Box<Gemini>),
    OpenAi(Box<OpenAi>),
    Anthropic(Box<Anthropic>),
    Simulator(Simulator),
}

impl Provider {
    /// A provider somewhere else, in its own language.
    pub fn remote(config: &RemoteProvider) -> Result<Self, String> {
        match config.kind {
            ProviderKind::OpenAi => Ok(Self::OpenAi(Box::new(OpenAi::new(config)?))),
            ProviderKind::Anthropic => Ok(Self::Anthropic(Box::new(Anthropic::new(config)?))),
            ProviderKind::Gemini => Ok(Self::Gemini(Box::new(Gemini::new(config)?))),
        }
    }

    /// Boxed, here and below: a call that waits for an answer is moved with all that it waits in.
    pub async fn complete(&self, call: &ChatCall, model: &str) -> Result<Answer, UpstreamError> {
        match self {
            Self::Gemini(provider) => Box::pin(provider.complete(call, model)).await,
            Self::OpenAi(provider) => Box::pin(provider.complete(call, model)).await,
            Self::Anthropic(provider) => Box::pin(provider.complete(call, model)).await,
            Self::Simulator(provider) => Box::pin(provider.complete(call)).await,
        }
    }

    /// Returns once the provider has begun to answer.
    pub async fn stream(&self, call: &ChatCall, model: &str) -> Result<Parts, UpstreamError> {
        match self {
            Self::Gemini(provider) => Box::pin(provider.stream(call, model)).await,
            Self::OpenAi(provider) => Box::pin(provider.stream(call, model)).await,
            Self::Anthropic(provider) => Box::pin(provider.stream(call, model)).await,
            Self::Simulator(provider) => Box::pin(provider.stream(call)).await,
        }
    }

    /// Asks the provider something that costs nothing; says what was wrong.
    pub async fn probe(&self) -> Result<String, String> {
        match self {
            Self::Gemini(provider) => provider.probe().await,
            Self::OpenAi(provider) => provider.probe().await,
            Self::Anthropic(provider) => provider.probe().await,
            Self::Simulator(_) => Ok("built in".into()),
        }
    }
}
