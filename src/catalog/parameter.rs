//! The sampling parameters that models advertise as supported or drop.

/// A request field that a model may support or drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    Temperature,
    TopP,
    TopK,
    Stop,
    Seed,
    FrequencyPenalty,
    PresencePenalty,
    LogitBias,
    Logprobs,
    TopLogprobs,
    MaxTokens,
}

impl Parameter {
    /// In the order of a model's `supported_parameters`.
    pub(crate) const ALL: [Self; 11] = [
        Self::Temperature,
        Self::TopP,
        Self::TopK,
        Self::Stop,
        Self::Seed,
        Self::FrequencyPenalty,
        Self::PresencePenalty,
        Self::LogitBias,
        Self::Logprobs,
        Self::TopLogprobs,
        Self::MaxTokens,
    ];

    /// Field name in requests and in the catalog.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Temperature => "temperature",
            Self::TopP => "top_p",
            Self::TopK => "top_k",
            Self::Stop => "stop",
            Self::Seed => "seed",
            Self::FrequencyPenalty => "frequency_penalty",
            Self::PresencePenalty => "presence_penalty",
            Self::LogitBias => "logit_bias",
            Self::Logprobs => "logprobs",
            Self::TopLogprobs => "top_logprobs",
            Self::MaxTokens => "max_tokens",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|parameter| parameter.as_str() == text)
    }
}
