//! Which targets of a hybrid could answer a request, and why the others could not.

use std::sync::Arc;

use crate::{
    base::money::NanoUsd,
    catalog::{Billable, Model},
};

/// How long an answer is taken to be, for comparing prices; the router was measured with it.
const EXPECTED_OUTPUT: u64 = 300;

/// What a request asks of whoever answers it.
#[derive(Clone, Debug, Default)]
pub struct Need {
    /// All that the model reads.
    pub prompt_tokens: u64,
    /// How many tools the caller offers. The gateway's own are no need of anyone's.
    pub tools: usize,
    pub json_schema: bool,
    pub json_mode: bool,
    pub stream: bool,
}

/// How much a target may write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cap {
    pub max_tokens: Option<u32>,
    /// It is more than the caller wants, because the target takes no less.
    pub is_raised: bool,
}

/// Why a target cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The account's plan does not include it.
    NotEntitled,
    /// An administrator has turned it off.
    Disabled,
    /// No provider is configured for it.
    Unserved,
    /// All its providers are left alone after failures.
    Unhealthy,
    Context,
    Tools,
    JsonSchema,
    JsonMode,
    Streaming,
    /// Its minimum is above the budget that the caller named.
    MinOutput,
}

impl Rejection {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotEntitled => "not_entitled",
            Self::Disabled => "disabled",
            Self::Unserved => "no_provider",
            Self::Unhealthy => "unhealthy",
            Self::Context => "context_length",
            Self::Tools => "tools",
            Self::JsonSchema => "json_schema",
            Self::JsonMode => "json_mode",
            Self::Streaming => "streaming",
            Self::MinOutput => "min_output",
        }
    }

    /// What there is none of, for the caller, and the field that asks for it.
    pub fn constraint(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::NotEntitled
            | Self::Disabled
            | Self::Unserved
            | Self::Unhealthy
            | Self::MinOutput => None,
            Self::Context => Some(("messages", "has a context that long")),
            Self::Tools => Some(("tools", "takes these tools")),
            Self::JsonSchema => Some(("response_format", "keeps to a JSON schema")),
            Self::JsonMode => Some(("response_format", "has a JSON mode")),
            Self::Streaming => Some(("stream", "streams its answers")),
        }
    }
}

/// A target of a hybrid, looked at for one request.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub model: Arc<Model>,
    pub rejected: Option<Rejection>,
    /// How long its answer is taken to be.
    pub output_tokens: u64,
    /// What the request is expected to cost, nothing of it being cached.
    pub cost: NanoUsd,
}

impl Candidate {
    /// `in_service` says what keeps it from being asked at all; `budget` is what it would have.
    pub fn new(model: Arc<Model>, need: &Need, in_service: Option<Rejection>, budget: Cap) -> Self {
        let output_tokens = budget.max_tokens.map_or(EXPECTED_OUTPUT, u64::from);
        let output_tokens = output_tokens.min(EXPECTED_OUTPUT);
        let lacking = in_service
            .filter(|reason| *reason != Rejection::Unhealthy)
            .or_else(|| lacks(&model, need, budget));
        let too_much = budget.is_raised.then_some(Rejection::MinOutput);
        Self {
            // One that rests can be asked all the same, so that it does is said last.
            rejected: lacking.or(too_much).or(in_service),
            output_tokens,
            cost: model.prices.cost(Billable {
                input: need.prompt_tokens,
                output: output_tokens,
                ..Billable::default()
            }),
            model,
        }
    }

    pub fn tier(&self) -> u8 {
        self.model.quality_tier
    }

    /// What is expected of it.
    pub fn quality(&self, by_tier: &[f32; 4]) -> f32 {
        let head = usize::from(self.tier()).saturating_sub(1).min(3);
        by_tier[head]
    }

    /// What it costs when so much of the prompt is in its provider's cache.
    pub fn cost_with_cached(&self, prompt_tokens: u64, cached: u64) -> NanoUsd {
        let cached_input = cached.min(prompt_tokens);
        self.model.prices.cost(Billable {
            input: prompt_tokens - cached_input,
            cached_input,
            output: self.output_tokens,
            ..Billable::default()
        })
    }
}

/// What the request needs and the model has not.
fn lacks(model: &Model, need: &Need, budget: Cap) -> Option<Rejection> {
    let output = budget.max_tokens.map_or(0, u64::from);
    let checks = [
        (
            need.prompt_tokens + output > u64::from(model.context_length),
            Rejection::Context,
        ),
        (
            need.tools > 0 && (!model.has_feature("tools") || need.tools > model.max_tools),
            Rejection::Tools,
        ),
        (
            need.json_schema && !model.has_feature("structured_outputs"),
            Rejection::JsonSchema,
        ),
        (
            need.json_mode && !model.has_feature("json_mode"),
            Rejection::JsonMode,
        ),
        (
            need.stream && !model.has_feature("streaming"),
            Rejection::Streaming,
        ),
    ];
    let mut checks = checks.into_iter();
    checks.find_map(|(lacks, reason)| lacks.then_some(reason))
}

/// The cheapest of these; of equals the one with the lower input price, then the first.
pub fn cheapest<'a>(candidates: impl IntoIterator<Item = &'a Candidate>) -> Option<&'a Candidate> {
    candidates
        .into_iter()
        .min_by_key(|one| (one.cost, one.model.prices.rates.input))
}
