//! Sends calls to model providers: an adapter for each API, and the deployments with their circuit breakers.
//!
//! An adapter translates a [`ChatCall`] into the provider's format, and the provider's response into an [`Answer`] or
//! a stream of [`Part`]s. Provider names, finish reasons and error texts do not leave this room untranslated. Every
//! failure is an [`UpstreamError`]; a response that was cut off or reported a failure is never returned as complete.
//! This room does not retry: `metered` decides about further attempts.
//!
//! May use the rooms listed after it in `lib.rs`; it uses `prompt`, `config`, `telemetry`, `net`, `wire`, `catalog` and
//! `base`.

use futures_util::stream::BoxStream;

mod anthropic;
mod auth;
mod client;
pub(crate) mod deployments;
mod eventstream;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz_targets;
mod gemini;
mod model_reader;
mod openai;
#[cfg(test)]
mod prompt_count_tests;
mod reason;
mod response;
mod simulator;
mod sse;
mod stream;
#[cfg(test)]
mod testing;

pub(crate) use anthropic::Anthropic;
pub(crate) use deployments::Deployments;
pub(crate) use gemini::Gemini;
pub(crate) use openai::OpenAi;
pub(crate) use simulator::Simulator;

use crate::{
    config::{ProviderKind, RemoteProvider},
    net::offload::Offload,
    prompt::ChatCall,
    wire::{chat::Answer, error::UpstreamError, part::Part},
};

/// The parts of a streamed response, in the order in which the provider sent them.
///
/// The stream ends at the provider's end marker or when the connection closes. The consumer must check whether the
/// response was complete: every choice needs a [`Part::Finish`].
pub(crate) type Parts = BoxStream<'static, Result<Part, UpstreamError>>;

/// The adapter for one provider.
pub enum Provider {
    Gemini(Box<Gemini>),
    OpenAi(Box<OpenAi>),
    Anthropic(Box<Anthropic>),
    Simulator(Simulator),
}

impl Provider {
    /// Makes the adapter for a remote provider of the configured kind.
    pub fn remote(config: &RemoteProvider) -> Result<Self, String> {
        match config.kind {
            ProviderKind::OpenAi => Ok(Self::OpenAi(Box::new(OpenAi::new(config)?))),
            ProviderKind::Anthropic => Ok(Self::Anthropic(Box::new(Anthropic::new(config)?))),
            ProviderKind::Gemini => Ok(Self::Gemini(Box::new(Gemini::new(config)?))),
        }
    }

    /// The adapter with the slots for long computations that others use too. Only requests that are signed or rewritten
    /// need them.
    fn sharing(mut self, offload: &Offload) -> Self {
        match &mut self {
            Self::OpenAi(provider) => provider.share_offload(offload),
            Self::Anthropic(provider) => provider.share_offload(offload),
            Self::Gemini(_) | Self::Simulator(_) => {}
        }
        self
    }

    /// Whether it speaks the Messages API.
    pub(crate) fn is_native(&self) -> bool {
        matches!(self, Self::Anthropic(_))
    }

    /// Requests a whole response.
    ///
    /// The futures here and in [`stream`](Self::stream) are boxed, because the caller's future is moved around and
    /// would otherwise contain the largest of them.
    pub(crate) async fn complete(
        &self,
        call: &ChatCall,
        model: &str,
    ) -> Result<Answer, UpstreamError> {
        match self {
            Self::Gemini(provider) => Box::pin(provider.complete(call, model)).await,
            Self::OpenAi(provider) => Box::pin(provider.complete(call, model)).await,
            Self::Anthropic(provider) => Box::pin(provider.complete(call, model)).await,
            Self::Simulator(provider) => Box::pin(provider.complete(call, model)).await,
        }
    }

    /// Requests a streamed response; returns once the provider has sent the response head.
    pub(crate) async fn stream(
        &self,
        call: &ChatCall,
        model: &str,
    ) -> Result<Parts, UpstreamError> {
        match self {
            Self::Gemini(provider) => Box::pin(provider.stream(call, model)).await,
            Self::OpenAi(provider) => Box::pin(provider.stream(call, model)).await,
            Self::Anthropic(provider) => Box::pin(provider.stream(call, model)).await,
            Self::Simulator(provider) => Box::pin(provider.stream(call, model)).await,
        }
    }

    /// Counts the tokens of a request of the Messages API; `None` if the provider does not speak it.
    pub(crate) async fn count_tokens(
        &self,
        call: &ChatCall,
        model: &str,
    ) -> Option<Result<u64, UpstreamError>> {
        match (self, &call.native) {
            (Self::Anthropic(provider), Some(native)) => {
                Some(provider.count_tokens(native, call, model).await)
            }
            _ => None,
        }
    }

    /// Sends a request that costs nothing, to check address and key; the texts are for the operator.
    pub async fn probe(&self) -> Result<String, String> {
        match self {
            Self::Gemini(provider) => provider.probe().await,
            Self::OpenAi(provider) => provider.probe().await,
            Self::Anthropic(provider) => provider.probe().await,
            Self::Simulator(_) => Ok("built in".into()),
        }
    }
}
